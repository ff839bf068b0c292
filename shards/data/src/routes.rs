//! The table of routes: which paths exist, which method each takes, and what serves it.

use queen_wire::http::Method;

/// What a request is for. Also the label of its metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Push,
    Pop,
    /// A pop that waits: the same path, but measured apart, since it is slow by design.
    WaitingPop,
    Ack,
    Request,
    Exchange,
    /// An exchange whose pop waits, measured apart like a pop that does.
    WaitingExchange,
    Configure,
    Reset,
    Delete,
    Queues,
    Depth,
    DurablePush,
    DurablePop,
    /// As [`Route::WaitingPop`].
    DurableWaitingPop,
    DurableAck,
    DurableAckBatch,
    ExtendLease,
    DurableConfigure,
    DurableDelete,
    Fetch,
    /// A fetch that waits, measured apart like a pop that does.
    WaitingFetch,
    ChangedPartitions,
    DurableQueues,
    DurableQueue,
    DurableDepth,
    Namespaces,
    Tasks,
    Overview,
    Partitions,
    Health,
    Status,
    Metrics,
    Prometheus,
    /// No such path, or not with that method.
    None,
}

impl Route {
    /// Every route, in the order of their discriminants.
    pub(crate) const ALL: [Self; 35] = [
        Self::Push,
        Self::Pop,
        Self::WaitingPop,
        Self::Ack,
        Self::Request,
        Self::Exchange,
        Self::WaitingExchange,
        Self::Configure,
        Self::Reset,
        Self::Delete,
        Self::Queues,
        Self::Depth,
        Self::DurablePush,
        Self::DurablePop,
        Self::DurableWaitingPop,
        Self::DurableAck,
        Self::DurableAckBatch,
        Self::ExtendLease,
        Self::DurableConfigure,
        Self::DurableDelete,
        Self::Fetch,
        Self::WaitingFetch,
        Self::ChangedPartitions,
        Self::DurableQueues,
        Self::DurableQueue,
        Self::DurableDepth,
        Self::Namespaces,
        Self::Tasks,
        Self::Overview,
        Self::Partitions,
        Self::Health,
        Self::Status,
        Self::Metrics,
        Self::Prometheus,
        Self::None,
    ];

    /// The name under which logs and metrics show it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pop => "pop",
            Self::WaitingPop => "pop_wait",
            Self::Ack => "ack",
            Self::Request => "request",
            Self::Exchange => "exchange",
            Self::WaitingExchange => "exchange_wait",
            Self::Configure => "configure",
            Self::Reset => "reset",
            Self::Delete => "delete",
            Self::Queues => "queues",
            Self::Depth => "depth",
            Self::DurablePush => "durable_push",
            Self::DurablePop => "durable_pop",
            Self::DurableWaitingPop => "durable_pop_wait",
            Self::DurableAck => "durable_ack",
            Self::DurableAckBatch => "durable_ack_batch",
            Self::ExtendLease => "lease_extend",
            Self::DurableConfigure => "durable_configure",
            Self::DurableDelete => "durable_delete",
            Self::Fetch => "fetch",
            Self::WaitingFetch => "fetch_wait",
            Self::ChangedPartitions => "partitions_changed",
            Self::DurableQueues => "durable_queues",
            Self::DurableQueue => "durable_queue",
            Self::DurableDepth => "durable_depth",
            Self::Namespaces => "namespaces",
            Self::Tasks => "tasks",
            Self::Overview => "overview",
            Self::Partitions => "partitions",
            Self::Health => "health",
            Self::Status => "status",
            Self::Metrics => "metrics",
            Self::Prometheus => "prometheus",
            Self::None => "none",
        }
    }

    /// Whether the tenancy header means something on it: the API does, probes do not.
    pub(crate) fn is_api(self) -> bool {
        !matches!(self, Self::Health | Self::Status | Self::Metrics | Self::Prometheus | Self::None)
    }

    /// The methods it takes, as `Allow` shows them. A read that changes nothing answers HEAD too.
    fn allow(self) -> &'static str {
        match self {
            Self::Push
            | Self::Ack
            | Self::Request
            | Self::Exchange
            | Self::WaitingExchange
            | Self::Configure
            | Self::Reset
            | Self::DurablePush
            | Self::DurableAck
            | Self::DurableAckBatch
            | Self::ExtendLease
            | Self::DurableConfigure
            | Self::Fetch
            | Self::WaitingFetch
            | Self::ChangedPartitions => "POST",
            Self::Pop | Self::WaitingPop | Self::DurablePop | Self::DurableWaitingPop => "GET",
            Self::Delete => "DELETE",
            // One path, two routes.
            Self::DurableQueue | Self::DurableDelete => "GET, HEAD, DELETE",
            _ => "GET, HEAD",
        }
    }

    fn takes(self, method: Method) -> bool {
        let name = match method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Delete => "DELETE",
            _ => return false,
        };
        self.allow().split(", ").any(|taken| taken == name)
    }
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
    let Some((route, segments)) = find(path) else { return Resolved::Unknown };
    if !route.takes(method) {
        return Resolved::WrongMethod { allow: route.allow() };
    }
    let route = if route == Route::DurableQueue && method == Method::Delete { Route::DurableDelete } else { route };
    Resolved::Route { route, segments }
}

/// A route and the segments that name things on it.
type Found<'p> = Option<(Route, [Option<&'p str>; 2])>;

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
    fn all_lists_the_routes_in_their_order() {
        for (index, route) in Route::ALL.iter().enumerate() {
            assert_eq!(*route as usize, index);
        }
    }
}
