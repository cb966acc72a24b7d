//! `fastvae serve`: what stops it from starting.

use std::net::TcpListener;

use crate::Place;

pub fn with_model() -> Place {
    let place = Place::with_data();
    let train = ["train", "data.tsv.zst", "-o", "m.fastvae", "--epochs", "1", "--titles", "titles.csv"];
    place.output(&[&train[..], &["--set", "hidden=16", "--set", "latent=8", "--store-users"]].concat());
    place
}

#[test]
fn what_keeps_a_service_from_starting_is_said_with_a_remedy() {
    let place = with_model();
    assert!(place.failure(&["serve", "nothing.fastvae"], 1).contains("nothing.fastvae"));
    let bytes = std::fs::read(place.path("m.fastvae")).unwrap();
    std::fs::write(place.path("cut.fastvae"), &bytes[..bytes.len() / 2]).unwrap();
    assert!(place.failure(&["serve", "cut.fastvae"], 1).contains("cut.fastvae"));
    let mut newer = bytes;
    let format = b"\"format\":\"3\"";
    let at = newer.windows(format.len()).position(|window| window == format).unwrap();
    newer[at + format.len() - 2] = b'9';
    std::fs::write(place.path("newer.fastvae"), &newer).unwrap();
    assert!(place.failure(&["serve", "newer.fastvae"], 1).contains("upgrade fastvae"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let error = place.failure(&["serve", "m.fastvae", "--port", &port], 1);
    assert!(error.contains("another program has this port"), "{error}");
    std::fs::write(place.path("key.txt"), "\n").unwrap();
    assert!(place.failure(&["serve", "m.fastvae", "--api-key-file", "key.txt"], 2).contains("is empty"));
    assert!(place.failure(&["serve", "m.fastvae", "--timeout", "0"], 2).contains("--timeout"));
    assert!(place.failure(&["serve", "m.fastvae", "--recall", "2"], 2).contains("recall"));
}
