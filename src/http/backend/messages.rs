//! The run service behind the handlers: messages of threads.

use crate::{http::api::messages::Messages, runs::Service};

#[async_trait::async_trait]
impl Messages for Service {}
