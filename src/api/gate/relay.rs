//! In place of the later steps: answers a request from the answers of other routes, each of which takes
//! these steps for itself. The caller, who has been admitted, is counted once.

use std::sync::Arc;

use bytes::Bytes;
use warp::http::{HeaderMap, StatusCode};

use super::Gate;
use super::admit::{Admitted, BoundHandler};
use super::handle::{Outcome, from_memory};
use crate::ApiError;
use crate::answer::JSON;
use crate::budgets::RequestShares;
use crate::call::{Body, RelayCall};
use crate::head::Head;
use crate::identity::{Access, Bearer};
use crate::relay::{Question, Relayed};
use crate::route::{Handler, PersonalHandler, RelayHandler};
use crate::router::Match;
use orrery_auth::decide;

impl Gate {
    /// Returns the outcome of a request that is answered from the answers of other routes.
    pub(super) async fn relay(
        &self,
        request: &Admitted<'_>,
        handler: RelayHandler,
        bearer: &Bearer<'_>,
        body: Body<'_>,
        shares: &mut RequestShares,
    ) -> Result<Outcome, ApiError> {
        let answer = match handler(&RelayCall { headers: &request.head.headers, body })? {
            Relayed::Answer(answer) => answer,
            Relayed::Ask(questions, tell) => {
                let mut answers = Vec::with_capacity(questions.len());
                for question in questions {
                    match self.ask(request, bearer, question, shares).await {
                        Err(error) if !is_of_caller(&error) => return Err(error),
                        answer => answers.push(answer),
                    }
                }
                tokio::task::block_in_place(|| tell(answers))?
            }
        };
        from_memory(&self.resources, request, answer, shares).map(Outcome::from)
    }

    /// Asks a route on behalf of the caller, if the caller may.
    async fn ask(
        &self,
        request: &Admitted<'_>,
        bearer: &Bearer<'_>,
        question: Question,
        shares: &mut RequestShares,
    ) -> Result<Bytes, ApiError> {
        let Question { method, path, query, body } = question;
        let client = Arc::clone(&request.head.client);
        let head = Head { method, path, query, headers: HeaderMap::new(), client };
        let Match::Handle(route, path) = self.router.find(&head.method, &head.path) else {
            return Err(ApiError::unknown_route(&head.path));
        };
        if let Access::Token(right) = route.access() {
            decide(&bearer.claims, right, &self.resources.deps.network)?;
        }
        let handler = match route.work.handler {
            Handler::Shared(_, handler) => BoundHandler::Shared(handler),
            Handler::Personal(_, PersonalHandler::Owner(handler)) => {
                BoundHandler::Owner(handler, bearer.clone())
            }
            // Answers that last, or are only for the one who asks, make no answer of another route.
            Handler::Personal(..) => return Err(ApiError::unknown_route(&head.path)),
        };
        let identity = request.identity;
        let asked = Admitted { head: &head, route, path, identity, handler, wants_gzip: false };
        let outcome = self.work(&asked, Body::new(&body, Some(JSON)), shares).await?;
        Ok(outcome.answer.body)
    }
}

/// Whether a failure is the caller's to mend, or passes: not one of this service.
fn is_of_caller(error: &ApiError) -> bool {
    !matches!(error, ApiError::HungUp)
        && error.status_and_code().0 != StatusCode::INTERNAL_SERVER_ERROR
}
