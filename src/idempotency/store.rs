//! Which principal used which key for which request, and the stored response.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use crate::{checkpoint::Error, id::WorkerId, time::Timestamp};

/// How long a response is stored.
pub const RETENTION: Duration = Duration::from_secs(24 * 3600);

/// A client's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The principal of the request.
    pub principal: Arc<str>,
    /// The text of the header.
    pub text: Arc<str>,
}

/// An attempt to carry out a request under a key.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The key.
    pub key: Key,
    /// Hash of method, path and body.
    pub request: [u8; 16],
    /// The id of this attempt.
    pub id: Uuid,
    /// The process that carries the request out; when its lease has lapsed the claim is void.
    pub worker: WorkerId,
}

/// The state of a key after an attempt to claim it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The claim is valid: carry the request out, then store its response or release the key.
    Granted {
        /// The id of the first claim of this request: another one than this claim's when an earlier
        /// attempt was abandoned or its process died. What the request creates has this id.
        first: Uuid,
    },
    /// Another claim carries the same request out.
    InProgress,
    /// The request was carried out, with this response.
    Completed(DatedResponse),
    /// The key belongs to another request.
    OtherRequest,
}

/// A response as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatedResponse {
    /// The response.
    pub bytes: Vec<u8>,
    /// When it was stored first, by the clock by which threads are created: what is younger is nothing that its request
    /// can have acted on.
    pub stored_at: Timestamp,
}

/// Stores keys and responses. Implemented by `storage::sqlite` and `storage::postgres`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Claims a key that is free, expired, or claimed for the same request by an attempt that was abandoned or whose
    /// process died.
    async fn claim_key(&self, claim: Claim) -> Result<Claimed, Error>;
    /// Stores the response, if the claim is still valid. The key is as old as the first one that is stored under it.
    async fn store_response(&self, claim: Claim, response: Vec<u8>) -> Result<(), Error>;
    /// Frees the key without a response, if the claim is still valid: nothing is known of its request any more.
    async fn release_key(&self, claim: Claim) -> Result<(), Error>;
    /// Frees the key for repetitions of its request alone, if the claim is still valid: they are granted it with the
    /// id of the first claim, as after the death of a process.
    async fn abandon_key(&self, claim: Claim) -> Result<(), Error>;
    /// Deletes keys older than [`RETENTION`], at most `limit`; returns how many.
    async fn expire_keys(&self, limit: usize) -> Result<u64, Error>;
}
