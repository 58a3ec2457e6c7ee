//! Numbers as the documentation writes them: three digits that count, and ratios with one decimal.

/// A rate, such as `18,300` or `13.0 million`.
pub fn rate(rate: f64) -> String {
    match rate {
        1e6.. => format!("{} million", digits(rate / 1e6)),
        _ => digits(rate),
    }
}

/// Rounds to three significant digits.
fn digits(value: f64) -> String {
    if value < 100.0 {
        let decimals = if value < 9.995 { 2 } else { 1 };
        return format!("{value:.decimals$}");
    }
    let unit = 10_f64.powi(value.log10().floor() as i32 - 2);
    grouped(((value / unit).round() * unit) as u64)
}

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub fn ratio(ratio: f64) -> String {
    format!("{ratio:.1}")
}

/// A time, given in microseconds.
pub fn time(us: f64) -> String {
    match us {
        ..10.0 => format!("{us:.1} µs"),
        ..1e3 => format!("{us:.0} µs"),
        ..1e5 => format!("{:.1} ms", us / 1e3),
        ..1e6 => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

/// Two times, in one unit if both have the same.
pub fn times(first: f64, second: f64) -> String {
    let (first, second) = (time(first), time(second));
    match (first.split_once(' '), second.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => {
            format!("{number} / {second}")
        }
        _ => format!("{first} / {second}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        let rates = [
            18_333.3,
            113.96,
            2_227.0,
            99.96,
            9.999,
            9.2,
            999_600.0,
            13_049_000.0,
        ];
        assert_eq!(
            rates.map(rate),
            [
                "18,300",
                "114",
                "2,230",
                "100.0",
                "10.0",
                "9.20",
                "1,000,000",
                "13.0 million"
            ]
        );
    }

    #[test]
    fn times_have_a_unit_that_suits_them() {
        let times = [0.13, 85.2, 3_240.0, 412_300.0, 1_260_000.0];
        assert_eq!(
            times.map(time),
            ["0.1 µs", "85 µs", "3.2 ms", "412 ms", "1.3 s"]
        );
        assert_eq!(super::times(915.0, 1_710.0), "915 µs / 1.7 ms");
        assert_eq!(super::times(3_240.0, 412_300.0), "3.2 / 412 ms");
    }
}
