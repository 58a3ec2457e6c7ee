//! State that every process needs separately, although a fork copies its parent's: random numbers, values with locks, threads.

use std::process;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use diesel::result::{Error as DieselError, QueryResult};
use once_cell::race::OnceBox;

use crate::error::Error;

/// Random bytes from the operating system. A generator in this process would return the same bytes in every child.
pub(crate) fn random<const N: usize>() -> QueryResult<[u8; N]> {
    let mut bytes = [0; N];
    let drawn = getrandom::fill(&mut bytes);
    drawn.map_err(|error| DieselError::QueryBuilderError(Box::new(error)))?;
    Ok(bytes)
}

/// 64 random bits for uses in which any bits would do. If the operating system provides none, all bits are set.
pub(crate) fn random_bits() -> u64 {
    u64::from_ne_bytes(random().unwrap_or([u8::MAX; 8]))
}

/// The process in which something was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MadeIn(u32);

impl MadeIn {
    pub(crate) fn this_process() -> Self {
        MadeIn(process::id())
    }

    pub(crate) fn is_this_process(self) -> bool {
        self == Self::this_process()
    }

    /// Refuses `what` in any other process.
    pub(crate) fn check(self, what: &'static str) -> Result<(), Error> {
        match self.is_this_process() {
            true => Ok(()),
            false => Err(Error::MadeBeforeFork { what }),
        }
    }
}

/// A separate value for each process. In a child's copy of its parent's value, a lock may be held forever by a thread that the child does
/// not have. (The same is true of a `OnceLock`. A [`OnceBox`] is one atomic pointer, and no fork leaves it half written.)
pub(crate) struct PerProcess<T: 'static> {
    /// Makes the value of a process, from its parent's if there is one.
    make: fn(Option<&T>) -> T,
    first: OnceBox<Own<T>>,
}

struct Own<T> {
    of: MadeIn,
    value: T,
    childs: OnceBox<Own<T>>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new(make: fn(Option<&T>) -> T) -> Self {
        PerProcess {
            make,
            first: OnceBox::new(),
        }
    }

    /// This process's own value.
    pub(crate) fn own(&self) -> &T {
        self.own_of(MadeIn::this_process())
    }

    /// The newest value if it is this process's, otherwise a new one. (An older value cannot be this process's, even if its process id is
    /// the same: process ids are reused.)
    fn own_of(&self, process: MadeIn) -> &T {
        let mut own = self.made(&self.first, None, process);
        loop {
            match own.childs.get() {
                Some(childs) => own = childs,
                None if own.of == process => return &own.value,
                None => own = self.made(&own.childs, Some(&own.value), process),
            }
        }
    }

    /// This process's own value if there is one, otherwise its parent's. That saves the system call for the process id.
    fn newest(&self) -> &T {
        let Some(mut newest) = self.first.get() else {
            return self.own();
        };
        while let Some(childs) = newest.childs.get() {
            newest = childs;
        }
        &newest.value
    }

    fn made<'a>(&self, cell: &'a OnceBox<Own<T>>, parents: Option<&T>, of: MadeIn) -> &'a Own<T> {
        cell.get_or_init(|| {
            let (value, childs) = ((self.make)(parents), OnceBox::new());
            Box::new(Own { of, value, childs })
        })
    }
}

impl<T: Clone> PerProcess<RwLock<T>> {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        match self.newest().try_read() {
            Ok(read) => read,
            // A thread holds the write lock. If that is a thread of the parent, it will never release this copy of the lock.
            Err(TryLockError::WouldBlock) => {
                let own = self.own().read();
                own.unwrap_or_else(PoisonError::into_inner)
            }
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        }
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.own().write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value in a parent's lock at the fork, unless a thread was writing it.
pub(crate) fn inherited<T: Clone>(parents: Option<&RwLock<T>>) -> Option<T> {
    match parents?.try_read() {
        Ok(value) => Some(value.clone()),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner().clone()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    const PARENT: MadeIn = MadeIn(1);
    const CHILD: MadeIn = MadeIn(2);
    const GRANDCHILD: MadeIn = MadeIn(3);

    #[test]
    fn each_process_has_its_own() {
        let values = PerProcess::new(|parents: Option<&String>| match parents {
            Some(parents) => format!("{parents}'s child"),
            None => "the parent".to_owned(),
        });
        for (process, value) in [
            (PARENT, "the parent"),
            (CHILD, "the parent's child"),
            (GRANDCHILD, "the parent's child's child"),
            // The parent has ended, and another process has its id.
            (PARENT, "the parent's child's child's child"),
        ] {
            let own = values.own_of(process);
            assert_eq!(own, value);
            assert!(ptr::eq(values.own_of(process), own));
        }
    }

    #[test]
    fn a_lock_that_the_parent_held_holds_nobody_up() {
        let locks = PerProcess::new(|parents| RwLock::new(inherited(parents).unwrap_or(0)));
        let parents = locks.own_of(PARENT);
        *parents.write().unwrap() = 7;
        {
            let _reads = parents.read().unwrap();
            assert_eq!(*locks.read(), 7); // the parent's, until there is a value of this process's own
            assert_eq!(*locks.own_of(CHILD).write().unwrap(), 7);
        }
        let _writes = parents.write().unwrap();
        assert_eq!(*locks.own_of(CHILD).read().unwrap(), 7);

        let locks = PerProcess::new(|parents| RwLock::new(inherited(parents).unwrap_or(0)));
        let _writes = locks.own_of(PARENT).write().unwrap();
        assert_eq!(*locks.read(), 0);
        *locks.write() = 8;
        assert_eq!(*locks.read(), 8);
    }

    #[test]
    fn what_another_process_made_is_refused() {
        assert!(MadeIn::this_process().check("coalescer").is_ok());
        let refused = MadeIn(0).check("coalescer").unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("the coalescer was made before"),
            "{refused}"
        );
    }

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random::<16>().unwrap(), random().unwrap());
        assert_ne!(random_bits(), random_bits());
    }
}
