//! Durations as manifests write them: `30s`, `5m`, `1h30m`, `1.5h`.

use std::time::Duration;

/// A duration that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration: write a number and a unit (ms, s, m, h), such as 30s, 5m or 1h30m")]
pub struct BadDuration(pub String);

/// Reads a duration.
pub fn parse(text: &str) -> Result<Duration, BadDuration> {
    let bad = || BadDuration(text.to_owned());
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| c != '.' && !c.is_ascii_digit())
            .ok_or_else(bad)?;
        let (number, after) = rest.split_at(digits);
        let unit_length = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_length);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        let number: f64 = number.parse().map_err(|_| bad())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| bad())?;
        total = total.checked_add(part).ok_or_else(bad)?;
        rest = after;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, seconds) in [
            ("30s", 30.0),
            ("5m", 300.0),
            ("1h30m", 5400.0),
            ("1.5h", 5400.0),
            ("250ms", 0.25),
            ("0s", 0.0),
        ] {
            assert_eq!(parse(text).unwrap().as_secs_f64(), seconds, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused_with_an_example() {
        for text in [
            "",
            "1",
            "h",
            "1d",
            "-1h",
            "1h 30m",
            "1..5h",
            "99999999999999999999999h",
        ] {
            assert!(
                parse(text).unwrap_err().to_string().contains("such as 30s"),
                "{text}"
            );
        }
    }
}
