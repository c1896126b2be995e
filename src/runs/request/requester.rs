//! On whose behalf a run is created.

use std::sync::Arc;

use uuid::Uuid;

use crate::{
    crons::CronRow,
    tree::members::{Access, Level},
};

/// The client that a run is created for, and its request. Nothing makes one up: every way in which
/// runs are requested has to say who requests them.
#[derive(Clone, Debug)]
pub struct Requester {
    /// `x-request-id` of the request, or a generated one.
    pub request_id: Arc<str>,
    /// The principal of the request; the owner of a thread that it creates.
    pub principal: Arc<str>,
    /// Whose share of the memory for states the request takes.
    pub payer: Arc<str>,
    /// Who authenticated for the request; `None` where nobody does. Nodes see it.
    pub user: Option<Arc<str>>,
    /// On whose behalf the run executes; that client must be a writer of the thread.
    pub access: Access,
}

impl Requester {
    /// Who requests the run of a cron that is due: the principal who created the cron.
    pub fn of_cron(cron: &CronRow) -> Self {
        let request_id: Arc<str> = Uuid::new_v4().to_string().into();
        Self {
            access: match &cron.principal {
                Some(principal) => Access::of(principal.clone(), request_id.clone(), Level::Writer),
                None => Access::unrestricted(),
            },
            request_id,
            principal: cron.owner.clone(),
            payer: cron.owner.clone(),
            user: cron.principal.clone(),
        }
    }

    /// Somebody who may do everything.
    #[cfg(test)]
    pub fn unrestricted() -> Self {
        Self {
            request_id: "".into(),
            principal: crate::tree::members::LOCAL_PRINCIPAL.into(),
            payer: crate::tree::members::LOCAL_PRINCIPAL.into(),
            user: None,
            access: Access::unrestricted(),
        }
    }
}
