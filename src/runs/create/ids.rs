//! What a request to run means here: its assistant, the config that it makes with it, and whom the run is for.

use crate::{
    assistants::Resolved,
    id::{RunId, ThreadId},
    runs::{
        Error, Service,
        execute::context_properties,
        request::{self, Ids, identity},
    },
};

impl Service {
    /// The ids of a run to create, and the assistant it executes, whose config and context go into
    /// the request: from then on no change of the assistant concerns the run.
    pub(super) async fn ids(
        &self,
        run: RunId,
        thread: ThreadId,
        request: &mut request::Run,
    ) -> Result<(Ids, Resolved), Error> {
        if self.shared.drain.is_cancelled() {
            return Err(Error::Draining);
        }
        let viewer = request.requester.access.principal();
        let assistants = &self.shared.assistants;
        let resolved = assistants.resolve(viewer, &request.assistant).await?;
        // Of a request that names nobody the user of the thread or of the assistant counts.
        identity::forget_nobody(&mut request.config);
        let known = context_properties(&resolved.registered.graph);
        let user = identity::named(&request.config, &request.context, known);
        (request.config, request.context) =
            resolved.merge(&request.config, &request.context, known);
        if let Some(user) = &user {
            identity::prefer(&mut request.config, user);
        }
        let ids = Ids {
            run,
            thread,
            assistant: resolved.id,
            graph: resolved.registered.name.clone(),
            names_user: user.is_some(),
        };
        Ok((ids, resolved))
    }
}
