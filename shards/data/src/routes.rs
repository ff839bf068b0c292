//! The table of routes: which paths exist, which method each takes, who may take it, and what it is for.

use std::sync::LazyLock;

use queen_auth::Access;
use queen_wire::http::Method;

/// The methods that a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Methods {
    /// GET of what changes something.
    Get,
    /// GET of what changes nothing, and HEAD.
    Read,
    Post,
    Put,
    Delete,
}

impl Methods {
    fn take(self, method: Method) -> bool {
        match self {
            Self::Get => method == Method::Get,
            Self::Read => matches!(method, Method::Get | Method::Head),
            Self::Post => method == Method::Post,
            Self::Put => method == Method::Put,
            Self::Delete => method == Method::Delete,
        }
    }

    /// As `Allow` names them.
    const fn names(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Read => "GET, HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// What a route belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    /// Ephemeral queues: what the kill switch and grants are for.
    Ephemeral,
    /// Durable queues.
    Durable,
    /// Who the caller is, and what operators switch and grant.
    System,
    /// The node itself: no tenant's. With tenants, what it counts over all of them is for operators.
    Node,
}

/// What the table says of a route.
struct Row {
    name: &'static str,
    methods: Methods,
    /// None where another route's handler gives it.
    paths: &'static [&'static str],
    access: Access,
    surface: Surface,
}

/// The table: a line without an access level does not compile.
macro_rules! routes {
    ($($(#[$doc:meta])* $route:ident $name:literal $methods:ident [$($path:literal),*] $access:ident $surface:ident;)*) => {
        /// What a request is for. Also the label of its metrics.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Route {
            $($(#[$doc])* $route,)*
            /// No such path, or not with that method.
            None,
        }

        impl Route {
            /// Every route, in the order of their discriminants.
            pub(crate) const ALL: &[Self] = &[$(Self::$route,)* Self::None];

            fn row(self) -> &'static Row {
                &TABLE[self as usize]
            }
        }

        const TABLE: &[Row] = &[
            $(Row {
                name: $name,
                methods: Methods::$methods,
                paths: &[$($path),*],
                access: Access::$access,
                surface: Surface::$surface,
            },)*
            Row { name: "none", methods: Methods::Read, paths: &[], access: Access::Open, surface: Surface::Node },
        ];
    };
}

routes! {
    Push "push" Post ["/api/v1/ephemeral/push"] Push Ephemeral;
    Pop "pop" Get ["/api/v1/ephemeral/pop"] ReadWrite Ephemeral;
    /// A pop that waits: the same path, but measured apart, since it is slow by design.
    WaitingPop "pop_wait" Get [] ReadWrite Ephemeral;
    Ack "ack" Post ["/api/v1/ephemeral/ack"] ReadWrite Ephemeral;
    Request "request" Post ["/api/v1/ephemeral/request"] ReadWrite Ephemeral;
    Exchange "exchange" Post ["/api/v1/ephemeral/exchange"] ReadWrite Ephemeral;
    /// An exchange whose pop waits, measured apart like a pop that does.
    WaitingExchange "exchange_wait" Post [] ReadWrite Ephemeral;
    Configure "configure" Post ["/api/v1/ephemeral/configure"] ReadWrite Ephemeral;
    Reset "reset" Post ["/api/v1/ephemeral/reset"] ReadWrite Ephemeral;
    Delete "delete" Delete ["/api/v1/ephemeral/queue/:queue"] ReadWrite Ephemeral;
    Queues "queues" Read ["/api/v1/ephemeral/queues"] Read Ephemeral;
    Depth "depth" Read ["/api/v1/ephemeral/queues/:queue/depth"] Read Ephemeral;
    DurablePush "durable_push" Post ["/api/v1/push"] Push Durable;
    DurablePop "durable_pop" Get
        ["/api/v1/pop", "/api/v1/pop/queue/:queue", "/api/v1/pop/queue/:queue/partition/:partition"] ReadWrite Durable;
    /// As [`Route::WaitingPop`].
    DurableWaitingPop "durable_pop_wait" Get [] ReadWrite Durable;
    DurableAck "durable_ack" Post ["/api/v1/ack"] ReadWrite Durable;
    DurableAckBatch "durable_ack_batch" Post ["/api/v1/ack/batch"] ReadWrite Durable;
    ExtendLease "lease_extend" Post ["/api/v1/lease/:lease/extend"] ReadWrite Durable;
    DurableConfigure "durable_configure" Post ["/api/v1/configure"] ReadWrite Durable;
    DurableQueue "durable_queue" Read ["/api/v1/resources/queues/:queue"] Read Durable;
    DurableDelete "durable_delete" Delete ["/api/v1/resources/queues/:queue"] Admin Durable;
    Fetch "fetch" Post ["/api/v1/fetch"] ReadWrite Durable;
    /// A fetch that waits, measured apart like a pop that does.
    WaitingFetch "fetch_wait" Post [] ReadWrite Durable;
    ChangedPartitions "partitions_changed" Post ["/api/v1/partitions/changed"] ReadWrite Durable;
    DurableQueues "durable_queues" Read ["/api/v1/resources/queues"] Read Durable;
    DurableDepth "durable_depth" Read ["/api/v1/resources/queues/:queue/depth"] Read Durable;
    Namespaces "namespaces" Read ["/api/v1/resources/namespaces"] Read Durable;
    Tasks "tasks" Read ["/api/v1/resources/tasks"] Read Durable;
    Overview "overview" Read ["/api/v1/resources/overview"] Read Durable;
    Partitions "partitions" Read ["/api/v1/resources/partitions"] Read Durable;
    WhoAmI "auth_me" Read ["/auth/me"] Open System;
    EphemeralState "ephemeral_state" Read ["/api/v1/system/ephemeral"] Admin System;
    SwitchEphemeral "ephemeral_switch" Post ["/api/v1/system/ephemeral"] Admin System;
    Quotas "quotas" Read ["/api/v1/system/ephemeral/quota"] Admin System;
    Quota "quota" Read ["/api/v1/system/ephemeral/quota/:tenant"] Admin System;
    PutQuota "quota_put" Put ["/api/v1/system/ephemeral/quota/:tenant"] Admin System;
    DeleteQuota "quota_delete" Delete ["/api/v1/system/ephemeral/quota/:tenant"] Admin System;
    Maintenance "maintenance" Read ["/api/v1/system/maintenance"] Admin System;
    SwitchMaintenance "maintenance_switch" Post ["/api/v1/system/maintenance"] Admin System;
    PopMaintenance "pop_maintenance" Read ["/api/v1/system/maintenance/pop"] Admin System;
    SwitchPopMaintenance "pop_maintenance_switch" Post ["/api/v1/system/maintenance/pop"] Admin System;
    SharedState "shared_state" Read ["/api/v1/system/shared-state"] Admin System;
    MeshStats "mesh_stats" Read
        ["/internal/api/shared-state/stats", "/internal/api/inter-instance/stats"] Admin System;
    Health "health" Read ["/health"] Open Node;
    Status "status" Read ["/status"] Read Node;
    Metrics "metrics" Read ["/metrics"] Read Node;
    Prometheus "prometheus" Read ["/metrics/prometheus"] Read Node;
}

/// The methods of each route's path, as `Allow` shows them: a path may lead to several routes.
static ALLOW: LazyLock<Vec<String>> = LazyLock::new(|| {
    let allowed = |row: &Row| {
        let takers = TABLE.iter().filter(|other| other.paths == row.paths);
        takers.map(|other| other.methods.names()).collect::<Vec<_>>().join(", ")
    };
    TABLE.iter().map(allowed).collect()
});

impl Route {
    /// The name under which logs and metrics show it.
    pub(crate) fn name(self) -> &'static str {
        self.row().name
    }

    /// What it belongs to.
    pub(crate) fn surface(self) -> Surface {
        self.row().surface
    }

    /// Who may take it, on a broker with tenants or without.
    pub(crate) fn access(self, tenants: bool) -> Access {
        match self.row() {
            Row { surface: Surface::Node, access: Access::Read, .. } if tenants => Access::Admin,
            row => row.access,
        }
    }

    /// The route of the same path that takes the method.
    fn with(self, method: Method) -> Option<Self> {
        let paths = self.row().paths;
        let takes = |route: &&Self| route.row().paths == paths && route.row().methods.take(method);
        if takes(&&self) { Some(self) } else { Self::ALL.iter().find(takes).copied() }
    }
}

/// A route as documentation and tests see it.
#[derive(Debug, Clone, Copy)]
pub struct RouteLine {
    /// Its first method.
    pub method: &'static str,
    /// Its path; a segment that begins with `:` names something.
    pub path: &'static str,
    /// Who may take it on a broker without tenants. On one with tenants, what [`Access::Read`] opens of the node itself
    /// is for [`Access::Admin`].
    pub access: Access,
}

/// Every path that is served, with every method.
pub fn route_lines() -> impl Iterator<Item = RouteLine> {
    TABLE.iter().flat_map(|row| {
        let method = row.methods.names().split(',').next().unwrap_or_default();
        row.paths.iter().map(move |&path| RouteLine { method, path, access: row.access })
    })
}

/// Where a request leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resolved<'p> {
    /// To a route; `segments` are the raw path segments that name things: a queue, a partition, a lease.
    Route { route: Route, segments: [Option<&'p str>; 2] },
    /// The path takes other methods.
    WrongMethod { allow: &'static str },
    /// Nowhere.
    Unknown,
}

/// Finds the route. Paths are exact: a trailing slash is another path.
pub(crate) fn resolve(method: Method, path: &str) -> Resolved<'_> {
    let Some((first, segments)) = find(path) else { return Resolved::Unknown };
    match first.with(method) {
        Some(route) => Resolved::Route { route, segments },
        None => Resolved::WrongMethod { allow: &ALLOW[first as usize] },
    }
}

/// A route and the segments that name things on it.
type Found<'p> = Option<(Route, [Option<&'p str>; 2])>;

/// The first route of a path, whatever its method.
fn find(path: &str) -> Found<'_> {
    if let Some(path) = path.strip_prefix("/api/v1/") {
        return match path.strip_prefix("ephemeral/") {
            Some(verb) => find_ephemeral(verb),
            None => find_durable(path),
        };
    }
    let route = match path {
        "/health" => Route::Health,
        "/status" => Route::Status,
        "/metrics" => Route::Metrics,
        "/metrics/prometheus" => Route::Prometheus,
        "/auth/me" => Route::WhoAmI,
        "/internal/api/shared-state/stats" | "/internal/api/inter-instance/stats" => Route::MeshStats,
        _ => return None,
    };
    Some((route, [None, None]))
}

fn find_ephemeral(verb: &str) -> Found<'_> {
    let route = match verb {
        "push" => Route::Push,
        "pop" => Route::Pop,
        "ack" => Route::Ack,
        "request" => Route::Request,
        "exchange" => Route::Exchange,
        "configure" => Route::Configure,
        "reset" => Route::Reset,
        "queues" => Route::Queues,
        _ => {
            return match verb.strip_prefix("queue/") {
                Some(queue) => named(Route::Delete, queue, None),
                None => named(Route::Depth, verb.strip_prefix("queues/")?.strip_suffix("/depth")?, None),
            };
        }
    };
    Some((route, [None, None]))
}

fn find_durable(path: &str) -> Found<'_> {
    let route = match path {
        "push" => Route::DurablePush,
        "pop" => Route::DurablePop,
        "ack" => Route::DurableAck,
        "ack/batch" => Route::DurableAckBatch,
        "configure" => Route::DurableConfigure,
        "fetch" => Route::Fetch,
        "partitions/changed" => Route::ChangedPartitions,
        "resources/queues" => Route::DurableQueues,
        "resources/namespaces" => Route::Namespaces,
        "resources/tasks" => Route::Tasks,
        "resources/overview" => Route::Overview,
        "resources/partitions" => Route::Partitions,
        "system/ephemeral" => Route::EphemeralState,
        "system/ephemeral/quota" => Route::Quotas,
        "system/maintenance" => Route::Maintenance,
        "system/maintenance/pop" => Route::PopMaintenance,
        "system/shared-state" => Route::SharedState,
        _ => return find_by_name(path),
    };
    Some((route, [None, None]))
}

fn find_by_name(path: &str) -> Found<'_> {
    if let Some(queue) = path.strip_prefix("pop/queue/") {
        return match queue.split_once("/partition/") {
            Some((queue, partition)) => named(Route::DurablePop, queue, Some(partition)),
            None => named(Route::DurablePop, queue, None),
        };
    }
    if let Some(queue) = path.strip_prefix("resources/queues/") {
        return match queue.strip_suffix("/depth") {
            Some(queue) => named(Route::DurableDepth, queue, None),
            None => named(Route::DurableQueue, queue, None),
        };
    }
    if let Some(tenant) = path.strip_prefix("system/ephemeral/quota/") {
        return named(Route::Quota, tenant, None);
    }
    named(Route::ExtendLease, path.strip_prefix("lease/")?.strip_suffix("/extend")?, None)
}

/// A route whose path has these segments, if each is one.
fn named<'p>(route: Route, first: &'p str, second: Option<&'p str>) -> Found<'p> {
    let is_one = |segment: &str| !segment.is_empty() && !segment.contains('/');
    (is_one(first) && second.is_none_or(is_one)).then_some((route, [Some(first), second]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(route: Route) -> Resolved<'static> {
        Resolved::Route { route, segments: [None, None] }
    }

    #[test]
    fn a_route_is_found_by_path_and_method() {
        assert_eq!(resolve(Method::Post, "/api/v1/ephemeral/push"), to(Route::Push));
        assert_eq!(resolve(Method::Get, "/api/v1/ephemeral/pop"), to(Route::Pop));
        assert_eq!(resolve(Method::Get, "/metrics/prometheus"), to(Route::Prometheus));
        assert_eq!(
            resolve(Method::Delete, "/api/v1/ephemeral/queue/a%2Fb"),
            Resolved::Route { route: Route::Delete, segments: [Some("a%2Fb"), None] }
        );
        assert_eq!(
            resolve(Method::Head, "/api/v1/ephemeral/queues/q/depth"),
            Resolved::Route { route: Route::Depth, segments: [Some("q"), None] }
        );
    }

    #[test]
    fn a_durable_route_is_found_with_what_its_path_names() {
        let to = |route, first, second| Resolved::Route { route, segments: [first, second] };
        for (method, path, expected) in [
            (Method::Post, "push", to(Route::DurablePush, None, None)),
            (Method::Get, "pop", to(Route::DurablePop, None, None)),
            (Method::Get, "pop/queue/a%2Fb", to(Route::DurablePop, Some("a%2Fb"), None)),
            (Method::Get, "pop/queue/q/partition/p", to(Route::DurablePop, Some("q"), Some("p"))),
            (Method::Post, "ack/batch", to(Route::DurableAckBatch, None, None)),
            (Method::Post, "lease/l/extend", to(Route::ExtendLease, Some("l"), None)),
            (Method::Get, "resources/queues/q", to(Route::DurableQueue, Some("q"), None)),
            (Method::Head, "resources/queues/q/depth", to(Route::DurableDepth, Some("q"), None)),
            (Method::Delete, "resources/queues/q", to(Route::DurableDelete, Some("q"), None)),
            (Method::Post, "resources/queues/q", Resolved::WrongMethod { allow: "GET, HEAD, DELETE" }),
            (Method::Head, "pop/queue/q", Resolved::WrongMethod { allow: "GET" }),
            (Method::Get, "pop/queue/", Resolved::Unknown),
            (Method::Get, "pop/queue/q/partition/", Resolved::Unknown),
            (Method::Get, "pop/queue/q/partition/p/", Resolved::Unknown),
            (Method::Get, "pop/queue/q/more", Resolved::Unknown),
            (Method::Post, "lease//extend", Resolved::Unknown),
        ] {
            assert_eq!(resolve(method, &format!("/api/v1/{path}")), expected, "{path}");
        }
    }

    #[test]
    fn the_wrong_method_names_the_right_ones() {
        assert_eq!(resolve(Method::Get, "/api/v1/ephemeral/push"), Resolved::WrongMethod { allow: "POST" });
        assert_eq!(resolve(Method::Post, "/health"), Resolved::WrongMethod { allow: "GET, HEAD" });
        assert_eq!(resolve(Method::Other, "/api/v1/ephemeral/pop"), Resolved::WrongMethod { allow: "GET" });
    }

    #[test]
    fn a_head_of_a_pop_takes_nothing_out_of_a_queue() {
        assert_eq!(resolve(Method::Head, "/api/v1/ephemeral/pop"), Resolved::WrongMethod { allow: "GET" });
    }

    #[test]
    fn near_misses_are_unknown() {
        for path in [
            "/",
            "/health/",
            "/api/v1/ephemeral/push/",
            "/api/v1/ephemeral/queue/",
            "/api/v1/ephemeral/queue/a/b",
            "/api/v1/ephemeral/queues//depth",
            "/api/v1/ephemeral/queues/q",
            "/API/v1/ephemeral/push",
        ] {
            assert_eq!(resolve(Method::Get, path), Resolved::Unknown, "{path}");
        }
    }

    #[test]
    fn every_line_of_the_table_is_found_by_its_path_and_method() {
        for (index, (&route, row)) in Route::ALL.iter().zip(TABLE).enumerate() {
            assert_eq!(route as usize, index);
            for path in row.paths {
                let (path, named) = (path.replace(':', "a-"), path.matches(':').count());
                for name in row.methods.names().split(", ") {
                    let method = match name {
                        "GET" => Method::Get,
                        "HEAD" => Method::Head,
                        "POST" => Method::Post,
                        "PUT" => Method::Put,
                        _ => Method::Delete,
                    };
                    let Resolved::Route { route: found, segments } = resolve(method, &path) else {
                        panic!("{name} {path} leads nowhere");
                    };
                    assert_eq!((found, segments.iter().flatten().count()), (route, named), "{name} {path}");
                }
                assert_eq!(resolve(Method::Patch, &path), Resolved::WrongMethod { allow: &ALLOW[index] });
            }
        }
    }

    #[test]
    fn a_path_with_several_routes_allows_the_methods_of_all() {
        assert_eq!(
            resolve(Method::Patch, "/api/v1/system/ephemeral/quota/t"),
            Resolved::WrongMethod { allow: "GET, HEAD, PUT, DELETE" }
        );
        assert_eq!(
            resolve(Method::Put, "/api/v1/system/ephemeral"),
            Resolved::WrongMethod { allow: "GET, HEAD, POST" }
        );
    }

    #[test]
    fn what_the_node_counts_over_all_tenants_is_for_operators() {
        assert_eq!(Route::Metrics.access(false), Access::Read);
        assert_eq!(Route::Metrics.access(true), Access::Admin);
        assert_eq!(Route::DurableQueues.access(true), Access::Read);
    }
}
