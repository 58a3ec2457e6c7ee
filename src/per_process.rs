//! What each process has of its own, though a fork copies its parent's: random numbers, values with locks, threads.

use std::process;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use diesel::result::{Error as DieselError, QueryResult};
use once_cell::race::OnceBox;

use crate::error::Error;

/// Random bytes of the operating system's: a generator in this process would draw the same in each child.
pub(crate) fn random<const N: usize>() -> QueryResult<[u8; N]> {
    let mut bytes = [0; N];
    let drawn = getrandom::fill(&mut bytes);
    drawn.map_err(|error| DieselError::QueryBuilderError(Box::new(error)))?;
    Ok(bytes)
}

/// 64 random bits where any would do: without the operating system's, all are set.
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

/// A value that each process has of its own. In a child's copy of its parent's, a lock may be held for ever, by a thread that the child
/// does not have. (So may a `OnceLock`; an [`OnceBox`] is one atomic pointer, which no fork leaves half written.)
pub(crate) struct PerProcess<T: 'static> {
    /// Makes a process's own, from its parent's if there is one.
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

    /// The newest value, unless that is a parent's. (An older one may be of this process's number, which had been another's.)
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

    /// This process's own value if it has one, else its parent's: that asks for no process's id, which takes a system call.
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
            // It is being written, by a thread of this process or by one that it does not have.
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

/// What a parent's lock held at the fork, if nobody was writing it.
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
            // The parent has ended, and its number is another's.
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
