//! The run service behind the handlers: forks, members, and the life of threads beyond one run.

use crate::{http::api::forks::Forks, runs::Service};

#[async_trait::async_trait]
impl Forks for Service {}
