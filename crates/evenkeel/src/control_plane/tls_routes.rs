//! Compiles the routes of TCP services for the data plane.

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_config::plan::{RoutePlan, RouteTarget, TlsRoutesPlan};
use evenkeel_policy::http::route::{Route, RouteTable};
use evenkeel_proxy::Service;
use evenkeel_proxy::tls_routes::{TlsRouteTarget, TlsRoutes};

/// Compiles the routes of a service. `None`: there are none. `find` returns the service of a name.
pub(super) fn compile(
    plan: &TlsRoutesPlan,
    find: &impl Fn(&str) -> Weak<Service>,
) -> Option<Arc<TlsRoutes>> {
    let route = |route: &RoutePlan| Route {
        conditions: route.conditions.clone(),
        protects: false,
        target: match &route.target {
            RouteTarget::Service(name) => TlsRouteTarget::Service(find(name)),
            // The last two are not read for TCP services.
            RouteTarget::Own
            | RouteTarget::Split(_)
            | RouteTarget::Redirect(_)
            | RouteTarget::Respond(_) => TlsRouteTarget::Own,
        },
    };
    let routes: Vec<_> = plan.routes.iter().map(route).collect();
    (!routes.is_empty()).then(|| {
        Arc::new(TlsRoutes {
            table: RouteTable::new(routes),
            hello_timeout: Duration::from_millis(plan.hello_timeout_ms),
        })
    })
}
