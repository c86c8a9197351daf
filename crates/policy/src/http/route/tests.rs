//! Tests of the choice of a route, and of patterns.

use super::*;

fn route(hosts: &[&str], path: &str) -> Route<()> {
    let hosts = hosts
        .iter()
        .map(|host| HostPattern::parse(host).expect("a host"));
    Route {
        conditions: Conditions {
            hosts: hosts.collect(),
            path: match path {
                "" => PathPattern::Any,
                path => PathPattern::parse(path).expect("a path"),
            },
            ..Conditions::default()
        },
        protects: false,
        target: (),
    }
}

fn found(routes: Vec<Route<()>>, host: &str, path: &str) -> Option<usize> {
    let request = RouteRequest {
        host: host.as_bytes(),
        path: path.as_bytes(),
        method: b"GET",
    };
    RouteTable::new(routes).find(&request, |_| false)
}

#[test]
fn an_exact_host_comes_before_wildcards_and_the_longest_of_those_first() {
    let routes = || {
        vec![
            route(&[], "/long/path"),
            route(&["*.example"], ""),
            route(&["*.shop.example"], ""),
            route(&["a.shop.example"], ""),
        ]
    };
    assert_eq!(found(routes(), "a.shop.example", "/long/path"), Some(3));
    assert_eq!(found(routes(), "A.Shop.Example", "/"), Some(3));
    assert_eq!(found(routes(), "b.shop.example", "/"), Some(2));
    assert_eq!(found(routes(), "x.b.shop.example", "/"), Some(2));
    assert_eq!(found(routes(), "shop.example", "/"), Some(1));
    assert_eq!(found(routes(), "example", "/long/path"), Some(0));
    assert_eq!(found(routes(), "example", "/"), None);
    assert_eq!(
        found(routes(), "xshop.example", "/"),
        Some(1),
        "a label is whole"
    );
    assert_eq!(found(routes(), ".shop.example", "/"), Some(2));
    assert_eq!(found(routes(), "", "/long/path/x"), Some(0));
}

#[test]
fn the_longest_path_wins_at_borders_of_segments() {
    let routes = || {
        vec![
            route(&[], "/"),
            route(&[], "/api"),
            route(&[], "/api/"),
            route(&[], "=/api/x"),
            route(&[], "/api/x"),
        ]
    };
    let expect = [
        ("/", 0),
        ("/apis", 0),
        ("/api", 1),
        ("/api/", 2),
        ("/api/y", 2),
        ("/api/x", 3),
        ("/api/x/", 4),
        ("/api/xy", 2),
    ];
    for (path, route) in expect {
        assert_eq!(found(routes(), "h", path), Some(route), "{path}");
    }
    assert_eq!(found(routes(), "h", "*"), None);
    assert_eq!(found(vec![route(&[], "")], "h", "*"), Some(0));
}

#[test]
fn the_first_of_equal_routes_wins_and_one_whose_conditions_fail_is_skipped() {
    let mut routes = vec![route(&[], "/a"), route(&[], "/a"), route(&[], "/")];
    assert_eq!(found(routes.clone(), "h", "/a"), Some(0));
    routes[0].conditions.methods = vec!["POST".to_owned()];
    assert_eq!(found(routes.clone(), "h", "/a"), Some(1));
    routes[1].conditions.headers = vec![HeaderCondition {
        name: "x".to_owned(),
        value: None,
    }];
    assert_eq!(found(routes.clone(), "h", "/a"), Some(2));
    routes[2].conditions.methods = vec!["get".to_owned()];
    assert_eq!(found(routes, "h", "/a"), None, "methods have a case");
}

#[test]
fn explain_names_the_reason_of_each_route() {
    let mut routes = vec![
        route(&["other"], ""),
        route(&[], "/b"),
        route(&[], "/a"),
        route(&[], "/a"),
        route(&["h"], "/a/b"),
        route(&["h"], "=/a/b"),
        route(&["h"], "=/a/b"),
        route(&["h"], "/"),
        route(&["h"], "/"),
    ];
    routes[2].conditions.methods = vec!["PUT".to_owned()];
    let condition = |name: &str| HeaderCondition {
        name: name.to_owned(),
        value: None,
    };
    routes[8].conditions.headers = vec![condition("yes"), condition("no")];
    let request = RouteRequest {
        host: b"h",
        path: b"/a/b",
        method: b"GET",
    };
    let table = RouteTable::new(routes);
    let candidates = table.explain(&request, |condition| condition.name == "yes");
    let expect = [
        (5, Verdict::Chosen),
        (6, Verdict::Outranked(OutrankedBy::Order)),
        (4, Verdict::Outranked(OutrankedBy::Path)),
        (7, Verdict::Outranked(OutrankedBy::Path)),
        (3, Verdict::Outranked(OutrankedBy::Host)),
        (0, Verdict::OtherHost),
        (1, Verdict::OtherPath),
        (2, Verdict::OtherMethod),
        (8, Verdict::OtherHeader(1)),
    ];
    let expect = expect.map(|(route, verdict)| Candidate { route, verdict });
    assert_eq!(candidates, expect);
}

#[test]
fn a_route_is_shadowed_if_earlier_ones_take_each_of_its_hosts_and_methods() {
    let with_methods = |mut route: Route<()>, methods: &[&str]| {
        route.conditions.methods = methods.iter().map(|&name| name.to_owned()).collect();
        route
    };
    let shadowed = |routes| RouteTable::new(routes).shadowed();
    let get = with_methods(route(&["a"], "/x"), &["GET"]);
    let post = with_methods(route(&["a"], "/x"), &["POST"]);
    let both = with_methods(route(&["a"], "/x"), &["GET", "POST"]);
    let expect = Shadow {
        route: 2,
        by: vec![0, 1],
    };
    assert_eq!(shadowed(vec![get.clone(), post, both.clone()]), [expect]);
    assert_eq!(shadowed(vec![get, both]), []);
    assert_eq!(shadowed(vec![route(&[], "/"), route(&["a"], "/x")]), []);
    assert_eq!(
        shadowed(vec![route(&["a"], "/"), route(&["a", "b"], "/")]),
        []
    );
    assert_eq!(
        shadowed(vec![route(&["a"], "/x"), route(&["a"], "=/x")]),
        []
    );
    let expect = Shadow {
        route: 1,
        by: vec![0],
    };
    let hosts = route(&["a", "*.a", "b"], "/");
    assert_eq!(shadowed(vec![hosts, route(&["b", "*.a"], "/")]), [expect]);
}

#[test]
fn hosts_are_read_as_they_are_written() {
    for text in [
        "shop.example",
        "*.shop.example",
        "192.0.2.1",
        "[2001:db8::1]",
        "a_b",
        "a-1",
    ] {
        let host = HostPattern::parse(text).expect(text);
        assert_eq!(host.to_string(), text);
    }
    let upper = HostPattern::parse("Shop.Example").expect("a host");
    assert_eq!(upper.to_string(), "shop.example");
    let bad = [
        ("", "not a host"),
        ("*", "every host"),
        ("a.*.b", "misplaced"),
        ("*a.b", "misplaced"),
        ("*.", "not a host"),
        ("a:80", "port"),
        ("2001:db8::1", "port"),
        ("[2001:db8::x]", "port"),
        ("a.", "dot"),
        ("a..b", "not a host"),
        ("a/b", "not a host"),
        ("ä.example", "ASCII"),
        (".", "not a host"),
    ];
    for (text, why) in bad {
        let error = HostPattern::parse(text).expect_err(text);
        assert!(error.to_string().contains(why), "{text}: {error}");
    }
}

#[test]
fn paths_are_read_as_they_are_written() {
    for text in ["/", "=/", "/api/", "=/api", "/a%20b"] {
        let path = PathPattern::parse(text).expect(text);
        assert_eq!(path.to_string(), text);
    }
    let bad = [
        ("", "not a path"),
        ("api", "not a path"),
        ("=api", "not a path"),
        ("/a?b", "query"),
        ("/a b", "character"),
        ("/ä", "character"),
        ("/a/*", "wildcard"),
        ("/a//b", "`/a/b`"),
        ("/%61", "`/a`"),
        ("/a/../b", "a dot segment"),
        ("/a%2Fb", "an encoded slash"),
    ];
    for (text, why) in bad {
        let error = PathPattern::parse(text).expect_err(text);
        assert!(error.to_string().contains(why), "{text}: {error}");
    }
}
