//! Numbers and keys as JSON.

use std::fmt;

use bigdecimal::BigDecimal;
use serde::ser::{Error, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::sums::Plain;

/// A number of any size, which JSON holds with all its digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Number(pub BigDecimal);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Plain(&self.0).fmt(f)
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = RawValue::from_string(self.to_string());
        digits.map_err(S::Error::custom)?.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_digit_is_lost() {
        for number in [
            "0",
            "-7",
            "184467440737095516150",
            "0.25",
            "-12345678901234567890.10",
        ] {
            let json = serde_json::to_string(&Number(number.parse().unwrap())).unwrap();
            let plain = match number.contains('.') {
                true => number.trim_end_matches('0'),
                false => number,
            };
            assert_eq!(json, plain);
        }
        let large = serde_json::to_string(&Number("1e30".parse().unwrap())).unwrap();
        assert_eq!(large, format!("1{}", "0".repeat(30)));
    }
}
