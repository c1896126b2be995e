//! The value of one channel at a checkpoint of the root graph, as it is stored.

use std::sync::Arc;

use crate::{
    checkpoint::{
        BlobRow, Error,
        frame::{self, Chains},
    },
    id::{CheckpointId, TreeId},
    value::Value,
};

/// A channel of a checkpoint of the root graph.
#[derive(Clone, Debug)]
pub struct ChannelKey {
    /// The tree.
    pub tree: TreeId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The channel.
    pub channel: Arc<str>,
}

/// How much is read at once of several channels.
#[derive(Clone, Copy, Debug)]
pub struct ChannelLimits {
    /// What weighs more is measured and not read.
    pub each: u64,
    /// What is read weighs at most so much together: the first ones are read.
    pub all: u64,
}

/// What is stored of one channel.
#[derive(Clone, Debug)]
pub enum ChannelRows {
    /// There is no such checkpoint, or no longer.
    Missing,
    /// Everything that its value is made of.
    Read(OneChannel),
    /// It was not read, and weighs so much.
    Weight(u64),
}

/// Everything that the value of a channel is made of.
#[derive(Clone, Debug, Default)]
pub struct OneChannel {
    /// The envelope of the checkpoint, which has short values.
    pub envelope: Vec<u8>,
    /// The blob of the value with all that it builds on.
    pub blobs: Vec<BlobRow>,
}

impl OneChannel {
    /// The value, if the checkpoint has one.
    ///
    /// # Errors
    /// A row cannot be read.
    pub fn value(&self, key: &ChannelKey) -> Result<Option<Value>, Error> {
        let value = frame::channel_value(&self.envelope, &key.channel, &Chains::new(&self.blobs));
        value.map_err(|error| {
            let (checkpoint, channel) = (key.checkpoint, &key.channel);
            Error::Corrupt(format!(
                "checkpoint {checkpoint}: channel `{channel}`: {error}"
            ))
        })
    }
}
