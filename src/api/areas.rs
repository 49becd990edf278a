//! The route tables of all areas: every area is registered here and nowhere else.

use super::route::Route;
use super::{
    ApiSettings, accounts, catalogue, changes, completeness, contracts, description, events,
    friendbot, health, ledgers, mcp, metrics, retroshade, rpc, site, status, storage, streams,
    transactions, webhooks,
};

/// Returns every route that a service with these settings may have. Those of friendbot exist only
/// where the service runs the network itself.
pub fn routes(settings: &ApiSettings) -> impl Iterator<Item = &'static Route> {
    areas(settings, true).into_iter().flatten()
}

/// Returns the route tables of all areas.
pub(super) fn areas(settings: &ApiSettings, has_friendbot: bool) -> [&'static [Route]; 21] {
    [
        &events::ROUTES,
        &streams::ROUTES,
        &transactions::ROUTES,
        &changes::ROUTES,
        &contracts::ROUTES,
        &storage::ROUTES,
        &ledgers::ROUTES,
        &completeness::ROUTES,
        &health::ROUTES,
        &description::ROUTES,
        &metrics::ROUTES,
        &status::ROUTES,
        &site::ROUTES,
        &retroshade::ROUTES,
        &webhooks::ROUTES,
        &mcp::ROUTES,
        &catalogue::ROUTES,
        &accounts::smart::ROUTES,
        &accounts::passkey::ROUTES,
        if settings.rpc.require_token { &rpc::WITH_TOKEN } else { &rpc::ROUTES },
        if has_friendbot { &friendbot::ROUTES } else { &[] },
    ]
}
