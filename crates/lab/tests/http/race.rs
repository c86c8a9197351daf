//! Tests of the race between a request and a server that closes its idle connection: what may not
//! be repeated is never delivered twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::client::{Client, post};
use crate::origin::{Origin, ok, reply};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    no_post_is_delivered_twice_by_a_server_with_an_unknown_idle_limit
    no_post_is_delivered_twice_by_a_server_with_random_idle_limits
}

/// Number of POSTs; `EVENKEEL_POSTS` sets another one.
const POSTS: u64 = 6_000;
const CLIENTS: u64 = 32;

/// Steps of a small generator.
fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Closes connections that were idle for a time, in milliseconds by the connection's number.
fn impatient(limit_ms: impl Fn(u64) -> u64 + Send + Sync + 'static) -> (Origin, Delivered) {
    let delivered = Delivered::default();
    let count = Arc::clone(&delivered);
    let origin = Origin::scripted(move |incoming, _| {
        let limit = Duration::from_millis(limit_ms(incoming.number as u64));
        incoming.socket.set_read_timeout(Some(limit)).unwrap();
        // A read that runs into the limit is the end of the connection.
        while let Some(seen) = incoming.request() {
            *count
                .lock()
                .unwrap()
                .entry(seen.path().to_owned())
                .or_default() += 1;
            if !reply(incoming.socket, ok("done")) {
                return;
            }
        }
    });
    (origin, delivered)
}

type Delivered = Arc<Mutex<BTreeMap<String, u32>>>;

fn post_with_pauses(io: &str, name: &str, origin: &Origin, delivered: &Delivered) {
    let posts = std::env::var("EVENKEEL_POSTS")
        .ok()
        .and_then(|text| text.parse().ok());
    let posts: u64 = posts.unwrap_or(POSTS);
    let bed = Bed::new(io, &[origin], "");
    let (next, failed, late) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (bed, next, failed, late) = (&bed, &next, &failed, &late);
            scope.spawn(move || {
                let (mut client, mut state) = (Client::connect(&bed.listen), number + 1);
                loop {
                    let post_number = next.fetch_add(1, Relaxed);
                    if post_number >= posts {
                        return;
                    }
                    client.send(post(&format!("/{post_number}"), "body"));
                    let answer = client.answer();
                    match answer.status {
                        200 => {}
                        502 => {
                            failed.fetch_add(1, Relaxed);
                            late.fetch_add(u64::from(post_number >= posts / 2), Relaxed);
                        }
                        status => panic!("{status}: {}", answer.text()),
                    }
                    // Mostly in quick succession, and sometimes as long as a server waits.
                    if random(&mut state).is_multiple_of(4) {
                        let pause = random(&mut state) % 600;
                        std::thread::park_timeout(Duration::from_millis(pause));
                    }
                }
            });
        }
    });
    let delivered = delivered.lock().unwrap();
    let twice: Vec<_> = delivered.iter().filter(|(_, count)| **count > 1).collect();
    let (failed, late) = (failed.load(Relaxed), late.load(Relaxed));
    println!(
        "{io}, {name}: {posts} POSTs in {:.1} s, {} server connections, {failed} answered 502 \
         ({late} in the second half), {} delivered and unanswered, {} delivered twice",
        started.elapsed().as_secs_f64(),
        origin.server.total(),
        delivered.len() as u64 + failed - posts,
        twice.len(),
    );
    assert!(twice.is_empty(), "{twice:?}");
    let answered = posts - failed;
    assert!(
        delivered.len() as u64 >= answered,
        "an answer without a delivery"
    );
    assert!(failed * 100 <= posts, "{failed} of {posts} POSTs failed");
}

fn no_post_is_delivered_twice_by_a_server_with_an_unknown_idle_limit(io: &str) {
    for limit_ms in [50, 200, 500] {
        let (origin, delivered) = impatient(move |_| limit_ms);
        post_with_pauses(io, &format!("limit {limit_ms} ms"), &origin, &delivered);
    }
}

fn no_post_is_delivered_twice_by_a_server_with_random_idle_limits(io: &str) {
    let (origin, delivered) = impatient(|number| {
        let mut state = number;
        random(&mut state);
        50 + random(&mut state) % 450
    });
    post_with_pauses(io, "random limits of 50 to 500 ms", &origin, &delivered);
}
