//! Seeded simulation: clients arrive, disconnect and time out; tasks arrive late and out of order;
//! connections fail; limits change. The expected counts are kept separately from the shared pools.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::*;
use crate::load::Load;
use crate::permits::UNLIMITED;

const SEEDS: u64 = 300;
const STEPS: u64 = 400;

/// Runs a simulation for each seed, or for the one that `SIMULATION_SEED` names; prints the seed of
/// one that fails.
pub(crate) fn for_each_seed(seeds: u64, run: impl Fn(u64)) {
    let named = std::env::var("SIMULATION_SEED").ok();
    let named = named.map(|seed| seed.parse().expect("SIMULATION_SEED is a number"));
    let (first, after) = named.map_or((0, seeds), |seed: u64| (seed, seed + 1));
    for seed in first..after {
        let _shown = SeedOnPanic(seed);
        run(seed);
    }
}

struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to repeat: SIMULATION_SEED={}", self.0);
        }
    }
}

/// Pseudorandom numbers from a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value ^ (value >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((self.roll() >> 20) % limit as u64) as usize
    }

    pub(crate) fn one_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    /// Removes a random element.
    pub(crate) fn draw<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        let index = self.below(from.len());
        Some(from.swap_remove(index))
    }
}

#[test]
fn in_any_world_limits_hold_and_nobody_waits_for_what_is_there() {
    for_each_seed(SEEDS, |seed| {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
            world.check_counts();
        }
        world.heal();
    });
}

#[test]
fn under_constant_load_nobody_waits_for_ever() {
    for_each_seed(SEEDS / 20, |seed| {
        let mut world = World::new(seed);
        for _ in 0..3_000 {
            world.now_ms += 1;
            world.work_under_load();
            world.check_counts();
            let since_ms = world.waiting.values().min();
            let waited_ms = since_ms.map_or(0, |since_ms| world.now_ms - since_ms);
            assert!(waited_ms < 1_500, "one waits for {waited_ms} ms");
        }
    });
}

struct Client {
    worker: usize,
    checkout: Checkout,
}

struct World {
    dice: Dice,
    now_ms: u64,
    shared_pools: Arc<SharedPools>,
    idle_pools: Vec<IdlePool>,
    pools: Vec<Arc<Pool>>,
    servers: Vec<Arc<Load>>,
    size: u32,
    user_limit: u32,
    /// Excess that the shared pools must not increase until it is gone.
    excess_allowed: u32,
    tasks: Vec<WorkerTask>,
    opening: Vec<WorkerTask>,
    closing: Vec<(usize, ClosingConnection)>,
    transit: Vec<(WaitTicket, Checkout)>,
    clients: Vec<Client>,
    waiting: BTreeMap<WaitTicket, u64>,
    connections: u32,
    next_connection: u32,
}

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Dice(seed);
        let workers = 1 + dice.below(3);
        let size = 1 + dice.below(5) as u32;
        let settings = PoolSettings {
            min_idle: dice.below(2) as u32,
            idle_ms: 200,
            lifetime_ms: [0, 300][dice.below(2)],
            wait_ms: 1_000_000,
            queue_length: 16,
            preference: [Preference::Moved, Preference::New][dice.below(2)],
            ..PoolSettings::default()
        };
        let shared_pools = Arc::new(SharedPools::new(workers, size, settings));
        let idle_pools =
            (0..workers).map(|worker| IdlePool::new(worker, Arc::clone(&shared_pools)));
        let mut world = World {
            now_ms: 0,
            idle_pools: idle_pools.collect(),
            shared_pools,
            pools: Vec::new(),
            servers: (0..2).map(|_| Arc::new(Load::new(None))).collect(),
            size,
            user_limit: [UNLIMITED, 1, 2][dice.below(3)],
            excess_allowed: 0,
            tasks: Vec::new(),
            opening: Vec::new(),
            closing: Vec::new(),
            transit: Vec::new(),
            clients: Vec::new(),
            waiting: BTreeMap::new(),
            connections: 0,
            next_connection: 0,
            dice,
        };
        world.servers[0].set_max_connections(Some(1 + world.dice.below(4) as u32));
        let pools = 1 + world.dice.below(4) as u64;
        world.pools = (0..pools).map(|index| world.new_pool(index)).collect();
        world
    }

    fn new_pool(&self, index: u64) -> Arc<Pool> {
        let key = PoolKey {
            server: index % 2,
            user: index / 2,
            generation: 0,
            database: 0,
            identity: 0,
        };
        let limits = PoolLimits {
            pool: UNLIMITED,
            user: self.user_limit,
            database: UNLIMITED,
        };
        self.shared_pools
            .pool(key, &limits, &self.servers[key.server as usize])
    }

    fn step(&mut self) {
        self.now_ms += self.dice.below(4) as u64;
        match self.dice.below(16) {
            0..=3 => self.arrive(),
            4..=6 => self.leave(),
            7..=9 => self.obey_one(),
            10 => self.open_one(),
            11 => self.close_one(),
            12 => self.land_one(),
            13 => self.give_up(),
            14 => self.upkeep(),
            _ if self.dice.one_in(4) => self.resize(),
            _ => {}
        }
    }

    /// Simulates a millisecond: a few clients per pool, each of which returns as soon as it has
    /// disconnected; connections and messages arrive.
    fn work_under_load(&mut self) {
        for index in 0..self.pools.len() {
            if self.clients_of(self.pools[index].id) < 4 {
                self.arrive_at(index);
            }
        }
        for _ in 0..4 {
            self.obey_one();
            self.open_one();
            self.close_one();
            self.land_one();
        }
        if self.dice.one_in(3) {
            self.leave();
        }
        if self.dice.one_in(100) {
            self.upkeep();
        }
    }

    fn clients_of(&self, pool: u64) -> usize {
        let waiting = self.waiting.keys().filter(|ticket| ticket.pool == pool);
        let served = self
            .clients
            .iter()
            .filter(|client| client.checkout.pool == pool);
        waiting.count() + served.count()
    }

    fn arrive(&mut self) {
        let index = self.dice.below(self.pools.len());
        self.arrive_at(index);
    }

    fn arrive_at(&mut self, index: usize) {
        let worker = self.dice.below(self.idle_pools.len());
        let pool = Arc::clone(&self.pools[index]);
        match self.idle_pools[worker].acquire(&pool, self.now_ms, &mut self.tasks) {
            AcquireDecision::Take(checkout) => self.clients.push(Client { worker, checkout }),
            AcquireDecision::Wait { ticket, .. } => {
                self.waiting.insert(ticket, self.now_ms);
            }
            AcquireDecision::Refuse(refusal) => assert_eq!(refusal, PoolRefusal::QueueFull),
        }
    }

    fn leave(&mut self) {
        if let Some(client) = self.dice.draw(&mut self.clients) {
            let condition = match self.dice.one_in(8) {
                true => Condition::Unclean,
                false => Condition::Clean,
            };
            let idle_pool = &mut self.idle_pools[client.worker];
            let returned =
                idle_pool.release(client.checkout, condition, self.now_ms, &mut self.tasks);
            self.returned(client.worker, returned);
        }
    }

    fn returned(&mut self, worker: usize, returned: ReleaseDecision) {
        match returned {
            ReleaseDecision::Idle => {}
            ReleaseDecision::Assign(ticket, checkout) => self.transit.push((ticket, checkout)),
            ReleaseDecision::Close(closing) => self.closing.push((worker, closing)),
        }
    }

    fn obey_one(&mut self) {
        let Some(order) = self.dice.draw(&mut self.tasks) else {
            return;
        };
        let idle_pool = &mut self.idle_pools[order.worker];
        match order.task {
            TaskKind::Connect => {
                self.connections += 1;
                self.opening.push(order);
            }
            TaskKind::Recheck { at_ms } if self.now_ms < at_ms => self.tasks.push(order),
            TaskKind::Recheck { .. } => {
                idle_pool.recheck(&order.pool, self.now_ms, &mut self.tasks);
            }
            TaskKind::HandOverIdle => {
                let given = idle_pool.hand_over_idle(&order.pool, self.now_ms, &mut self.tasks);
                self.transit.extend(given);
            }
            TaskKind::AcceptOffer { .. } => unreachable!("no session offers its connection"),
            TaskKind::Evict { on_behalf } => {
                let closing = idle_pool.evict(&order.pool, on_behalf, self.now_ms, &mut self.tasks);
                self.closing
                    .extend(closing.map(|closing| (order.worker, closing)));
            }
        }
    }

    fn open_one(&mut self) {
        let Some(WorkerTask { worker, pool, .. }) = self.dice.draw(&mut self.opening) else {
            return;
        };
        if self.dice.one_in(6) {
            self.connections -= 1;
            let failure =
                [OpenFailure::Failed, OpenFailure::Full { pause_ms: 20 }][self.dice.below(2)];
            let tasks = &mut self.tasks;
            let reported =
                self.idle_pools[worker].connect_failed(&pool, failure, self.now_ms, tasks);
            reported.inspect(|ticket| assert!(self.waiting.remove(ticket).is_some()));
            return;
        }
        self.next_connection += 1;
        let (connection, random) = (self.next_connection, self.dice.roll());
        let returned =
            self.idle_pools[worker].opened(&pool, connection, self.now_ms, random, &mut self.tasks);
        self.returned(worker, returned);
    }

    fn close_one(&mut self) {
        if let Some((worker, closing)) = self.dice.draw(&mut self.closing) {
            self.connections -= 1;
            self.idle_pools[worker].closed(closing, self.now_ms, &mut self.tasks);
        }
    }

    /// Delivers a connection to its assigned client, or to the client's worker if it has
    /// disconnected.
    fn land_one(&mut self) {
        let Some((ticket, checkout)) = self.dice.draw(&mut self.transit) else {
            return;
        };
        let worker = ticket.worker;
        if self.waiting.remove(&ticket).is_some() {
            self.clients.push(Client { worker, checkout });
        } else {
            let returned = self.idle_pools[worker].release(
                checkout,
                Condition::Clean,
                self.now_ms,
                &mut self.tasks,
            );
            self.returned(worker, returned);
        }
    }

    fn give_up(&mut self) {
        let tickets: Vec<WaitTicket> = self.waiting.keys().copied().collect();
        if tickets.is_empty() {
            return;
        }
        let ticket = tickets[self.dice.below(tickets.len())];
        let is_answered = self.transit.iter().any(|(to, _)| *to == ticket);
        let expected = match is_answered {
            true => CancelOutcome::Answered,
            false => CancelOutcome::Left,
        };
        assert_eq!(self.shared_pools.cancel(ticket), expected);
        self.waiting.remove(&ticket);
    }

    fn upkeep(&mut self) {
        let worker = self.dice.below(self.idle_pools.len());
        let closing = self.idle_pools[worker].maintain(self.now_ms, &mut self.tasks);
        self.closing
            .extend(closing.into_iter().map(|one| (worker, one)));
    }

    fn resize(&mut self) {
        self.size = 1 + self.dice.below(5) as u32;
        let tasks = &mut self.tasks;
        self.shared_pools
            .set_limit(LimitScope::Service, self.size, self.now_ms, tasks);
        self.excess_allowed = self.connections_ordered();
    }

    fn connections_ordered(&self) -> u32 {
        let is_connect = |order: &&WorkerTask| order.task == TaskKind::Connect;
        self.connections + self.tasks.iter().filter(is_connect).count() as u32
    }

    fn check_counts(&mut self) {
        let counted = self.connections_ordered();
        let stats = self.shared_pools.stats();
        let booked: u32 = stats.iter().map(|one| one.connections).sum();
        assert_eq!(counted, booked, "connections in the books");
        // Only connections that existed before a limit was lowered may exceed it.
        self.excess_allowed = self.excess_allowed.min(counted);
        assert!(
            counted <= self.size.max(self.excess_allowed),
            "over the limit"
        );
        let idle: usize = self.pools.iter().map(|pool| self.idle(pool)).sum();
        let held = self.clients.len() + self.transit.len() + self.closing.len();
        let there = idle + held + self.opening.len();
        assert_eq!(there as u32, self.connections, "a connection is lost");
        for user in 0..2 {
            let of_user = stats.iter().filter(|one| one.key.user == user);
            let booked: u32 = of_user.map(|one| one.connections).sum();
            assert!(booked <= self.user_limit, "over the user's limit");
        }
        let first = self.servers[0].active();
        assert!(
            first <= self.servers[0].permits.limit(),
            "over the server's limit"
        );
        let answered = self
            .transit
            .iter()
            .filter(|(to, _)| self.waiting.contains_key(to));
        assert_eq!(
            self.waiting.len() - answered.count(),
            self.shared_pools.waiting()
        );
        if self.is_settled() {
            self.check_nobody_waits_needlessly();
        }
    }

    fn idle(&self, pool: &Pool) -> usize {
        self.idle_pools
            .iter()
            .map(|idle_pool| idle_pool.idle(pool))
            .sum()
    }

    fn is_settled(&self) -> bool {
        self.tasks.is_empty()
            && self.opening.is_empty()
            && self.closing.is_empty()
            && self.transit.is_empty()
    }

    /// Returns which limits prevent one more connection of a pool: service, user, server.
    fn full(&self, pool: &Pool) -> [bool; 3] {
        let stats = self.shared_pools.stats();
        let of_user = stats.iter().filter(|one| one.key.user == pool.key().user);
        [
            self.connections >= self.size,
            of_user.map(|one| one.connections).sum::<u32>() >= self.user_limit,
            self.servers[pool.key().server as usize].is_full(),
        ]
    }

    fn check_nobody_waits_needlessly(&self) {
        for ticket in self.waiting.keys() {
            let pool = self.pools.iter().find(|pool| pool.id == ticket.pool);
            let pool = pool.expect("a pool of the world");
            assert_eq!(self.idle(pool), 0, "{ticket:?} waits beside an idle one");
            let full = self.full(pool);
            if self.shared_pools.lock().pools[&pool.id].retry_at_ms > 0 {
                continue;
            }
            assert_ne!(full, [false; 3], "{ticket:?} waits beside a free place");
            let could_make_room = |limit: usize| {
                let counts = |other: &&Arc<Pool>| match limit {
                    0 => true,
                    1 => other.key().user == pool.key().user,
                    _ => other.key().server == pool.key().server,
                };
                let others = self.pools.iter().filter(counts);
                others.map(|other| self.idle(other)).sum::<usize>() > 0
            };
            let is_stuck = (0..3).any(|limit| full[limit] && !could_make_room(limit));
            assert!(
                is_stuck,
                "{ticket:?} waits beside ones that could make room"
            );
        }
    }

    /// Ends all faults: every waiting client must be served soon.
    fn heal(&mut self) {
        let mut rounds = 0;
        while !self.waiting.is_empty() || !self.is_settled() {
            rounds += 1;
            assert!(rounds < 2_000, "{} wait for ever", self.waiting.len());
            self.now_ms += 1;
            self.obey_one();
            self.open_one();
            self.close_one();
            self.land_one();
            self.leave();
            self.upkeep();
            self.check_counts();
        }
    }
}
