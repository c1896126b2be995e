//! The earlier form of envelopes, which is still read: names are whole, and each version stands where it is
//! meant.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use bincode::de::{BorrowDecode, BorrowDecoder, Decode};
use bincode::error::DecodeError;
use uuid::Uuid;

use super::{AHEAD, Updated, at_position, updated};
use crate::{
    checkpoint::{
        Version, Versions,
        codec::{Keys, MAX_DEPTH, read, read_array, read_len, read_str},
    },
    id::TaskId,
};

/// Its first byte.
pub(super) const FORMAT: u8 = 1;

/// An envelope in this form.
pub(super) struct Envelope(pub(super) super::Envelope<'static>);

impl<'de, C> BorrowDecode<'de, C> for Envelope {
    fn borrow_decode<D: BorrowDecoder<'de, Context = C>>(
        decoder: &mut D,
    ) -> Result<Self, DecodeError> {
        let versioned = read_len(decoder)?;
        let others = read_len(decoder)?;
        let count = versioned.checked_add(others);
        let count = count.ok_or(DecodeError::Other("it has too many channels"))?;
        let mut names: Vec<Arc<str>> = Vec::with_capacity(count.min(AHEAD));
        for _ in 0..count {
            names.push(read_str(decoder)?.into());
        }
        let mut versions = Versions::new();
        for name in names.iter().take(versioned) {
            versions.insert(name.clone(), read_version(decoder)?);
        }
        let len = read_len(decoder)?;
        let mut values = Vec::with_capacity(len.min(AHEAD));
        let mut keys = Keys::default();
        for _ in 0..len {
            let name = at_position(decoder, &names)?;
            values.push((name, read(decoder, MAX_DEPTH, &mut keys)?));
        }
        let mut consumed = BTreeMap::new();
        for _ in 0..read_len(decoder)? {
            let node: Arc<str> = read_str(decoder)?.into();
            let mut of_node = Versions::new();
            for _ in 0..read_len(decoder)? {
                let name = at_position(decoder, &names)?;
                let version = if bool::decode(decoder)? {
                    *versions
                        .get(&name)
                        .ok_or(DecodeError::Other("a consumed channel has no version"))?
                } else {
                    read_version(decoder)?
                };
                of_node.insert(name, version);
            }
            consumed.insert(node, of_node);
        }
        let updated = match u8::decode(decoder)? {
            updated::NEWEST => Updated::Newest,
            updated::UNKNOWN => Updated::Unknown,
            updated::NAMES => {
                let len = read_len(decoder)?;
                let mut channels = Vec::with_capacity(len.min(AHEAD));
                for _ in 0..len {
                    channels.push(at_position(decoder, &names)?);
                }
                Updated::Names(channels)
            }
            _ => return Err(DecodeError::Other("its updated channels are unreadable")),
        };
        let task = if bool::decode(decoder)? {
            Some(TaskId(Uuid::from_bytes(read_array(decoder)?)))
        } else {
            None
        };
        Ok(Self(super::Envelope {
            versions: Cow::Owned(versions),
            values,
            consumed: Cow::Owned(consumed),
            updated,
            task,
        }))
    }
}

fn read_version<'de, D: BorrowDecoder<'de>>(decoder: &mut D) -> Result<Version, DecodeError> {
    Ok(Version {
        counter: u64::decode(decoder)?,
        salt: u32::from_le_bytes(read_array(decoder)?),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{decode, tests::full};

    #[test]
    fn an_envelope_in_the_earlier_form_is_read() {
        let hex = "0102030161046e756c00016204676f6e65056f7468657203efcdab00fd000000000001\
             0000efcdab0002000602780002030103095f5f696e7075745f5f00016e02000002efcd\
             ab00030000efcdab00016f010001020200040100000000000000000000000000000007";
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let mut bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        assert_eq!(decode(&bytes).unwrap(), full());
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        for at in 1..bytes.len() {
            for byte in [0, 1, 0x7f, 0xfb, 0xfd, 0xff] {
                let was = std::mem::replace(&mut bytes[at], byte);
                let _ = decode(&bytes);
                bytes[at] = was;
            }
        }
    }
}
