//! Numbers as people read them.

use std::time::Duration;

/// `1234567` as `1,234,567`.
pub fn grouped(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if number < 0 {
        grouped.insert(0, '-');
    }
    grouped
}

/// `1 video`, `2 videos`.
pub fn counted(number: u64, thing: &str) -> String {
    format!("{} {}", grouped(number), noun(number, thing))
}

/// `video` of one, `videos` of another number.
pub fn noun(number: impl Into<i128>, thing: &str) -> String {
    let plural = if number.into() == 1 { "" } else { "s" };
    format!("{thing}{plural}")
}

/// `1234567` as `1.2M`; cut and not rounded, so that nothing looks like more than it is.
pub fn short(number: i64) -> String {
    match number {
        1_000_000.. => format!("{}.{}M", grouped(number / 1_000_000), number / 100_000 % 10),
        1_000.. => format!("{}K", number / 1_000),
        _ => grouped(number),
    }
}

/// `3725` seconds as `1:02:05`.
pub fn duration(seconds: i32) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// How long ago this many seconds are, in the greatest unit. Clocks differ, so it may still be ahead.
pub fn ago(seconds: i64) -> String {
    let (number, unit) = match seconds.max(0).unsigned_abs() {
        0..60 => return "just now".to_owned(),
        seconds @ 60..3_600 => (seconds / 60, "minute"),
        seconds @ 3_600..86_400 => (seconds / 3_600, "hour"),
        seconds => (seconds / 86_400, "day"),
    };
    format!("{} ago", counted(number, unit))
}

/// A time in milliseconds, with two digits below 10.
pub fn milliseconds(time: Duration) -> String {
    let milliseconds = time.as_secs_f64() * 1_000.0;
    match milliseconds {
        0.0..10.0 => format!("{milliseconds:.2} ms"),
        10.0..100.0 => format!("{milliseconds:.1} ms"),
        _ => format!("{} ms", grouped(milliseconds as i64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let numbers = [0, 999, 1_000, -1_000, 1_234_567, i64::MIN];
        assert_eq!(
            numbers.map(grouped),
            [
                "0",
                "999",
                "1,000",
                "-1,000",
                "1,234,567",
                "-9,223,372,036,854,775,808"
            ]
        );
    }

    #[test]
    fn one_thing_is_no_plural() {
        let things = [0, 1, 1_000].map(|number| counted(number, "video"));
        assert_eq!(things, ["0 videos", "1 video", "1,000 videos"]);
    }

    #[test]
    fn numbers_are_cut_short() {
        let numbers = [0, 1_999, 12_999, 999_999, 1_284_530, -15_000];
        assert_eq!(
            numbers.map(short),
            ["0", "1K", "12K", "999K", "1.2M", "-15,000"]
        );
    }

    #[test]
    fn times_are_told_in_their_greatest_unit() {
        assert_eq!(
            [-5, 59, 60, 7_300, 86_400 * 3].map(ago),
            [
                "just now",
                "just now",
                "1 minute ago",
                "2 hours ago",
                "3 days ago"
            ]
        );
    }

    #[test]
    fn milliseconds_are_as_precise_as_people_read_them() {
        assert_eq!(
            [0, 875, 12_345, 1_234_567].map(|micros| milliseconds(Duration::from_micros(micros))),
            ["0.00 ms", "0.88 ms", "12.3 ms", "1,234 ms"]
        );
    }

    #[test]
    fn durations_have_hours_where_they_need_them() {
        assert_eq!([19, 600, 3725].map(duration), ["0:19", "10:00", "1:02:05"]);
    }
}
