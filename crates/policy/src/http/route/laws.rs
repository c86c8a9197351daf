//! Laws of routes over random tables and requests.

use super::{
    Conditions, HeaderCondition, HostPattern, PathPattern, Route, RouteRequest, RouteTable,
};
use super::{Shadow, Verdict};

const HOSTS: [&str; 6] = ["a.b.c", "b.c", "c", "*.b.c", "*.c", "d"];
const PATHS: [&str; 12] = [
    "/", "=/", "/x", "/x/", "=/x", "=/x/", "/x/y", "/x/y/", "=/x/y", "/xy", "/x/y/z", "/y",
];
const METHODS: [&str; 3] = ["GET", "POST", "PUT"];
const REQUEST_METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];
const REQUEST_HOSTS: [&str; 9] = ["a.b.c", "A.B.c", "b.c", "c", "z.b.c", "z.z.c", "d", "e", ""];
const REQUEST_PATHS: [&str; 11] = [
    "/", "/x", "/x/", "/x/y", "/x/y/", "/x/y/z", "/xy", "/y/", "/x/q", "/q", "*",
];

/// Pseudorandom numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn some_of<T: Clone>(&mut self, all: &[T], odds: usize) -> Vec<T> {
        let chosen = all.iter().filter(|_| self.below(odds) == 0);
        chosen.cloned().collect()
    }
}

fn any_route(dice: &mut Dice) -> Route<()> {
    let hosts = dice.some_of(&HOSTS, 4);
    let path = match dice.below(5) {
        0 => PathPattern::Any,
        _ => PathPattern::parse(PATHS[dice.below(PATHS.len())]).expect("a path"),
    };
    let condition = |value: Option<&str>| HeaderCondition {
        name: "x-a".to_owned(),
        value: value.map(str::to_owned),
    };
    let headers = [condition(None), condition(Some("1"))];
    Route {
        conditions: Conditions {
            hosts: hosts
                .iter()
                .map(|host| HostPattern::parse(host).expect("a host"))
                .collect(),
            path,
            methods: dice.some_of(&METHODS.map(str::to_owned), 5),
            headers: dice.some_of(&headers, 5),
        },
        protects: dice.below(6) == 0,
        target: (),
    }
}

/// Each request that the tables can distinguish.
fn each_request(mut check: impl FnMut(&RouteRequest<'_>, Option<&str>)) {
    for host in REQUEST_HOSTS {
        for path in REQUEST_PATHS {
            for method in REQUEST_METHODS {
                for field in [None, Some("0"), Some("1")] {
                    let request = RouteRequest {
                        host: host.as_bytes(),
                        path: path.as_bytes(),
                        method: method.as_bytes(),
                    };
                    check(&request, field);
                }
            }
        }
    }
}

fn holds(condition: &HeaderCondition, field: Option<&str>) -> bool {
    field.is_some_and(|field| {
        condition
            .value
            .as_deref()
            .is_none_or(|value| value == field)
    })
}

fn any_tables(count: u64, mut check: impl FnMut(&RouteTable<()>, u64)) {
    for seed in 0..count {
        let mut dice = Dice(seed);
        let routes = (0..dice.below(9)).map(|_| any_route(&mut dice)).collect();
        check(&RouteTable::new(routes), seed);
    }
}

#[test]
fn the_compiled_table_finds_the_route_that_explain_chooses() {
    any_tables(120, |table, seed| {
        each_request(|request, field| {
            let found = table.find(request, |condition| holds(condition, field));
            let candidates = table.explain(request, |condition| holds(condition, field));
            let chosen = candidates.iter().find(|one| one.verdict == Verdict::Chosen);
            let chosen = chosen.map(|candidate| candidate.route);
            assert_eq!(
                found,
                chosen,
                "seed {seed}, {request:?}, {:?}",
                table.routes()
            );
            assert_eq!(
                candidates.len(),
                table.routes().len(),
                "each route has a reason"
            );
        });
    });
}

/// Returns routes that have the same host and path, so that they shadow each other.
fn alike_routes(dice: &mut Dice) -> Vec<Route<()>> {
    let routes = (0..5).map(|_| {
        let mut route = any_route(dice);
        route.conditions.hosts = vec![HostPattern::parse("d").expect("a host")];
        route.conditions.path = PathPattern::parse("/x").expect("a path");
        route
    });
    routes.collect()
}

#[test]
fn a_shadowed_route_is_never_found_and_another_one_takes_each_of_its_requests() {
    let mut shadows = 0;
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut routes = alike_routes(&mut dice);
        routes.extend((0..3).map(|_| any_route(&mut dice)));
        let table = RouteTable::new(routes);
        for Shadow { route, by } in table.shadowed() {
            shadows += 1;
            assert!(
                by.iter().all(|&earlier| earlier < route),
                "seed {seed}: {by:?}"
            );
            let alone = RouteTable::new(vec![table.routes()[route].clone()]);
            each_request(|request, field| {
                let holds = |condition: &HeaderCondition| holds(condition, field);
                let found = table.find(request, holds);
                assert_ne!(found, Some(route), "seed {seed}, {request:?}");
                assert!(found.is_some() || alone.find(request, holds).is_none());
            });
        }
    }
    assert!(shadows > 100, "only {shadows} of them");
}

/// Conditions on header fields are left out: whether several of them together take every request
/// is not examined.
#[test]
fn a_route_that_is_not_shadowed_takes_some_request() {
    for seed in 0..300 {
        let mut routes = alike_routes(&mut Dice(seed));
        for route in &mut routes {
            route.conditions.headers.clear();
        }
        let table = RouteTable::new(routes);
        let mut found = [false; 5];
        each_request(|request, _| {
            if let Some(route) = table.find(request, |_| false) {
                found[route] = true;
            }
        });
        for shadow in table.shadowed() {
            assert!(!found[shadow.route], "seed {seed}");
            found[shadow.route] = true;
        }
        assert_eq!(found, [true; 5], "seed {seed}: {:?}", table.routes());
    }
}

#[test]
fn a_table_guards_each_host_of_a_route_that_restricts_access() {
    any_tables(120, |table, seed| {
        for host in REQUEST_HOSTS {
            let lower = host.to_ascii_lowercase();
            let takes_host = |route: &Route<()>| {
                let hosts = &route.conditions.hosts;
                hosts.is_empty() || hosts.iter().any(|pattern| pattern.fits(lower.as_bytes()))
            };
            let protects = table
                .routes()
                .iter()
                .any(|route| route.protects && takes_host(route));
            assert_eq!(
                table.guards(host.as_bytes()),
                protects,
                "seed {seed}, {host}"
            );
        }
    });
}
