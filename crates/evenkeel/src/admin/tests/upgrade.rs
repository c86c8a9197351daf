//! Tests which clients may start an upgrade.

use super::world::World;

#[tokio::test]
async fn an_upgrade_takes_the_control_socket_even_with_the_token() {
    let world = World::start(Some("sesame")).await;
    let json = "content-type: application/json";
    let token = "authorization: Bearer sesame";
    let body = "{\"binary\": \"/bin/sh\"}";
    let refused = world
        .tcp("POST /api/v1/upgrade", &[json, token], body)
        .await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    assert!(refused.body.contains("control socket"), "{}", refused.body);
    let done = world
        .unix("POST /api/v1/upgrade", &["host: x", json], body)
        .await;
    assert_eq!(done.code, 200, "{}", done.body);
    let typing_error = "{\"binray\": \"/bin/sh\"}";
    let headers = ["host: x", json];
    let refused = world.unix("POST /api/v1/upgrade", &headers, typing_error);
    assert_eq!(refused.await.code, 400);
}
