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
    Health,
    Status,
    Metrics,
    Prometheus,
    /// No such path, or not with that method.
    None,
}

impl Route {
    /// Every route, in the order of their discriminants.
    pub(crate) const ALL: [Self; 17] = [
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
            | Self::Reset => "POST",
            Self::Pop | Self::WaitingPop => "GET",
            Self::Delete => "DELETE",
            _ => "GET, HEAD",
        }
    }

    fn takes(self, method: Method) -> bool {
        match method {
            Method::Get => self.allow().starts_with("GET"),
            Method::Head => self.allow() == "GET, HEAD",
            Method::Post => self.allow() == "POST",
            Method::Delete => self.allow() == "DELETE",
            _ => false,
        }
    }
}

/// Where a request leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resolved<'p> {
    /// To a route; `queue` is the raw path segment that names one.
    Route { route: Route, queue: Option<&'p str> },
    /// The path takes other methods.
    WrongMethod { allow: &'static str },
    /// Nowhere.
    Unknown,
}

/// Finds the route. Paths are exact: a trailing slash is another path.
pub(crate) fn resolve(method: Method, path: &str) -> Resolved<'_> {
    let Some((route, queue)) = find(path) else { return Resolved::Unknown };
    if route.takes(method) { Resolved::Route { route, queue } } else { Resolved::WrongMethod { allow: route.allow() } }
}

fn find(path: &str) -> Option<(Route, Option<&str>)> {
    let Some(verb) = path.strip_prefix("/api/v1/ephemeral/") else {
        let route = match path {
            "/health" => Route::Health,
            "/status" => Route::Status,
            "/metrics" => Route::Metrics,
            "/metrics/prometheus" => Route::Prometheus,
            _ => return None,
        };
        return Some((route, None));
    };
    let route = match verb {
        "push" => Route::Push,
        "pop" => Route::Pop,
        "ack" => Route::Ack,
        "request" => Route::Request,
        "exchange" => Route::Exchange,
        "configure" => Route::Configure,
        "reset" => Route::Reset,
        "queues" => Route::Queues,
        _ => return find_by_queue(verb),
    };
    Some((route, None))
}

fn find_by_queue(verb: &str) -> Option<(Route, Option<&str>)> {
    let (route, queue) = if let Some(queue) = verb.strip_prefix("queue/") {
        (Route::Delete, queue)
    } else {
        (Route::Depth, verb.strip_prefix("queues/")?.strip_suffix("/depth")?)
    };
    (!queue.is_empty() && !queue.contains('/')).then_some((route, Some(queue)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(route: Route) -> Resolved<'static> {
        Resolved::Route { route, queue: None }
    }

    #[test]
    fn a_route_is_found_by_path_and_method() {
        assert_eq!(resolve(Method::Post, "/api/v1/ephemeral/push"), to(Route::Push));
        assert_eq!(resolve(Method::Get, "/api/v1/ephemeral/pop"), to(Route::Pop));
        assert_eq!(resolve(Method::Get, "/metrics/prometheus"), to(Route::Prometheus));
        assert_eq!(
            resolve(Method::Delete, "/api/v1/ephemeral/queue/a%2Fb"),
            Resolved::Route { route: Route::Delete, queue: Some("a%2Fb") }
        );
        assert_eq!(
            resolve(Method::Head, "/api/v1/ephemeral/queues/q/depth"),
            Resolved::Route { route: Route::Depth, queue: Some("q") }
        );
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
