//! `fastvae serve`: what stops it from starting, and one request over a socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use crate::Place;

fn with_model() -> Place {
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
    let format = b"\"format\":\"1\"";
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

#[test]
fn a_service_answers_with_its_key_and_stops_in_order() {
    let place = with_model();
    let mut service = Command::new(env!("CARGO_BIN_EXE_fastvae"))
        .args(["-q", "serve", "m.fastvae", "--port", "0"])
        .env("FASTVAE_API_KEY", "secret")
        .current_dir(place.path(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap().to_string();
    let ask = |key: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let head = format!(
            "GET /api/recommend/3?n=2 HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("secret").starts_with("HTTP/1.1 200"), "{}", ask("secret"));
    assert!(ask("guess").starts_with("HTTP/1.1 401"));
    let stopped = Command::new("kill").args(["-TERM", &service.id().to_string()]).status().unwrap();
    assert!(stopped.success() && service.wait().unwrap().success());
}
