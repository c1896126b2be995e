//! Sizes of channel values with all that they build on.

use std::{collections::HashMap, sync::Arc};

use super::Version;

/// Sizes of the rows of chains of deltas, and the sums over chains.
#[derive(Default)]
pub struct ChainSizes {
    rows: HashMap<(Arc<str>, Version), Row>,
    /// Bytes of all rows together.
    distinct: u64,
}

struct Row {
    base: Option<Version>,
    bytes: u64,
    /// Bytes of this row and all below it, once they were added up.
    sum: Option<u64>,
}

impl ChainSizes {
    /// Adds a row; one that is there already counts once.
    pub fn add(&mut self, channel: Arc<str>, version: Version, base: Option<Version>, bytes: u64) {
        let row = Row {
            base,
            bytes,
            sum: None,
        };
        if self.rows.insert((channel, version), row).is_none() {
            self.distinct += bytes;
        }
    }

    /// What the row of a value builds on; `None` when the row was not added.
    pub fn base(&self, channel: &Arc<str>, version: Version) -> Option<Option<Version>> {
        let row = self.rows.get(&(channel.clone(), version));
        row.map(|row| row.base)
    }

    /// Bytes of all rows together, each counted once.
    pub fn distinct(&self) -> u64 {
        self.distinct
    }

    /// Bytes of a value with all that it builds on; 0 for one without a row.
    pub fn sum(&mut self, channel: &Arc<str>, version: Version) -> u64 {
        let mut chain = vec![];
        let mut next = Some(version);
        let mut sum = 0;
        while let Some(version) = next {
            let Some(row) = self.rows.get(&(channel.clone(), version)) else {
                break;
            };
            // Damaged data must not make a circle.
            if chain.len() > self.rows.len() {
                break;
            }
            if let Some(known) = row.sum {
                sum = known;
                break;
            }
            chain.push(version);
            next = row.base;
        }
        for version in chain.into_iter().rev() {
            if let Some(row) = self.rows.get_mut(&(channel.clone(), version)) {
                sum += row.bytes;
                row.sum = Some(sum);
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(counter: u64) -> Version {
        Version { counter, salt: 0 }
    }

    #[test]
    fn a_value_weighs_as_much_as_its_chain_and_shared_rows_count_once() {
        let (mut sizes, log) = (ChainSizes::default(), Arc::<str>::from("log"));
        sizes.add(log.clone(), version(1), None, 100);
        sizes.add(log.clone(), version(2), Some(version(1)), 10);
        sizes.add(log.clone(), version(3), Some(version(2)), 1);
        sizes.add(log.clone(), version(4), Some(version(2)), 2);
        sizes.add(log.clone(), version(4), Some(version(2)), 2);
        assert_eq!(sizes.sum(&log, version(3)), 111);
        assert_eq!(sizes.sum(&log, version(4)), 112);
        assert_eq!(sizes.sum(&log, version(1)), 100);
        assert_eq!(sizes.sum(&log, version(9)), 0);
        assert_eq!(sizes.distinct(), 113);
    }

    #[test]
    fn a_circle_ends() {
        let (mut sizes, log) = (ChainSizes::default(), Arc::<str>::from("log"));
        sizes.add(log.clone(), version(1), Some(version(2)), 1);
        sizes.add(log.clone(), version(2), Some(version(1)), 1);
        assert!(sizes.sum(&log, version(1)) > 0);
    }
}
