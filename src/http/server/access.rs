//! Who may call a route, and on whose behalf its handler acts.

use std::{collections::BTreeSet, sync::Arc};

use hyper::StatusCode;

use super::{auth::Client, error::Error};
use crate::tree::members::{Access, Level};

/// Who may call a route: a column of the table of routes. A level is one on each thread that the
/// request names, in its path or its body; the transaction or the read that the operation is
/// checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Everybody, also without a key.
    Public,
    /// Every client; what it shows is what the client may read.
    Anyone,
    /// Clients that may read the thread.
    Reader,
    /// Clients that may change it.
    Writer,
    /// Clients that may share it.
    Manager,
    /// Clients that may delete it.
    Owner,
    /// Principals that the settings name, and while they name none, every client.
    Operator,
    /// Principals that the settings name.
    Admin,
}

impl Right {
    /// The level on a thread that an operation takes.
    fn level(self) -> Level {
        match self {
            Self::Public | Self::Anyone | Self::Reader | Self::Operator | Self::Admin => {
                Level::Reader
            }
            Self::Writer => Level::Writer,
            Self::Manager => Level::Manager,
            Self::Owner => Level::Owner,
        }
    }

    /// On whose behalf a handler of this route acts for a client.
    ///
    /// # Errors
    /// 403: only administrators may call it.
    pub fn access(
        self,
        client: &Client,
        request: &Arc<str>,
        admins: &BTreeSet<Arc<str>>,
    ) -> Result<Access, Error> {
        if !client.is_known {
            return Ok(Access::unrestricted());
        }
        let principal = &client.principal;
        let is_for_admins = match self {
            Self::Admin => true,
            // A program that authenticates by itself says who administers.
            Self::Operator => !admins.is_empty() || client.role.is_some(),
            _ => false,
        };
        if is_for_admins && !client.administers(admins) {
            tracing::info!(%principal, request_id = %request, "access to administration was refused");
            let detail = "Only administrators may do this: BACKSTITCH_ADMINS names them";
            return Err(Error::new(StatusCode::FORBIDDEN, detail).with_code("forbidden"));
        }
        if self == Self::Admin {
            return Ok(Access::unrestricted());
        }
        Ok(Access::of(principal.clone(), request.clone(), self.level()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::server::principal::Principal;

    #[test]
    fn only_named_principals_administer_and_without_keys_everybody_does() {
        let admins = BTreeSet::from([Arc::from("root")]);
        let may = |principal: &str, is_known| {
            let principal = principal.into();
            let client = Client {
                principal,
                is_known,
                role: None,
            };
            Right::Admin.access(&client, &"r".into(), &admins).is_ok()
        };
        assert!(may("root", true));
        assert!(!may("ann", true));
        assert!(may("local", false));
    }

    #[test]
    fn whom_the_program_lets_administer_does_without_being_named() {
        let may = |right: Right, principal: Principal| {
            let client = Client::of(&principal);
            let access = right.access(&client, &"r".into(), &BTreeSet::new());
            access.is_ok()
        };
        let ann = || Principal::new("ann");
        for right in [Right::Admin, Right::Operator] {
            assert!(may(right, ann().administers()));
            assert!(!may(right, ann()) && !may(right, ann().reads_only()));
        }
        assert!(may(Right::Anyone, ann()));
    }
}
