//! When a delivery that failed is tried once more.

use std::time::Duration;

/// Pauses between the tries of a delivery: 8 tries within a day.
const PAUSES: [Duration; 7] = [
    Duration::from_secs(2),
    Duration::from_secs(30),
    Duration::from_secs(300),
    Duration::from_secs(1800),
    Duration::from_secs(2 * 3600),
    Duration::from_secs(6 * 3600),
    Duration::from_secs(14 * 3600),
];

/// The pause behind a try, counted from 1; `None` behind the last one. It is spread by a fifth, so that
/// deliveries that failed together do not come back together.
pub fn pause_after(attempt: i32) -> Option<Duration> {
    let at = usize::try_from(attempt).ok()?.saturating_sub(1);
    let pause = PAUSES.get(at)?;
    Some(pause.mul_f64(rand::random_range(0.8..1.2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_tries_with_growing_pauses_take_about_a_day() {
        let pauses: Vec<_> = (1..=7)
            .map(|attempt| pause_after(attempt).unwrap())
            .collect();
        assert_eq!(pause_after(8), None);
        assert!(pauses.windows(2).all(|two| two[0] < two[1]), "{pauses:?}");
        let total: Duration = pauses.iter().sum();
        let hours = total.as_secs() / 3600;
        assert!((17..=28).contains(&hours), "{hours} hours");
    }
}
