//! Over sockets: load, reloads, clients that misbehave, and the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastvae_server::{Limits, Options, accept};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{Service, model};

/// A service on a free port, until it is told to stop.
struct Listening {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

impl Listening {
    async fn start(service: &Service) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move {
            let _ = stopped.await;
        };
        let done = tokio::spawn(accept(service.app.clone(), listener, stopped));
        Self { address, stop, done }
    }
}

fn request(text: &str) -> String {
    format!(
        "POST /v1/recommend HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    )
}

/// Reads one answer and gives its status.
async fn status(stream: &mut TcpStream) -> Option<u16> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let head = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = head {
            let text = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length: usize =
                text.split("content-length: ").nth(1)?.split_whitespace().next()?.parse().ok()?;
            if bytes.len() >= end + 4 + length {
                return text.split_whitespace().nth(1)?.parse().ok();
            }
        }
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&part[..n]),
        }
    }
}

async fn healthy(address: SocketAddr) -> bool {
    let asking = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n").await.ok()?;
        status(&mut stream).await
    };
    tokio::time::timeout(Duration::from_secs(5), asking).await == Ok(Some(200))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_reloads_under_load_fail_no_request_and_leave_no_memory() {
    let service = Service::new();
    let listening = Listening::start(&service).await;
    let (going, answered) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let (going, answered, address) = (Arc::clone(&going), Arc::clone(&answered), listening.address);
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                while going.load(Ordering::Relaxed) {
                    let text = format!("{{\"history\": [{client}, 17], \"explain\": true}}");
                    stream.write_all(request(&text).as_bytes()).await.unwrap();
                    assert_eq!(status(&mut stream).await, Some(200));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let served = Arc::downgrade(&service.app.served());
    for seed in 2..12 {
        model(seed, true).save(service.path()).unwrap();
        let app = service.app.clone();
        tokio::task::spawn_blocking(move || app.reload().map(drop)).await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    going.store(false, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert!(answered.load(Ordering::Relaxed) > 50);
    assert_eq!(service.app.served().generation, 11);
    assert!(served.upgrade().is_none(), "the first model is gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_senders_are_cut_off_and_do_not_disturb_others() {
    let limits = Limits { time: Duration::from_millis(600), ..Limits::default() };
    let service = Service::with(Options { limits, threads: 1, ..Options::default() }, false);
    let listening = Listening::start(&service).await;
    let started = Instant::now();
    // One byte at a time, of the head and of the body; and one that says nothing at all.
    let mut head = TcpStream::connect(listening.address).await.unwrap();
    let mut body = TcpStream::connect(listening.address).await.unwrap();
    let silent = TcpStream::connect(listening.address).await.unwrap();
    body.write_all(request(&"x".repeat(500)).split_inclusive("\r\n\r\n").next().unwrap().as_bytes())
        .await
        .unwrap();
    let text = request("{}");
    let trickle = async {
        for byte in text.as_bytes() {
            let gone = head.write_all(&[*byte]).await.is_err();
            let _ = body.write_all(b" ").await;
            if gone || started.elapsed() > Duration::from_secs(2) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let others = async {
        for _ in 0..10 {
            assert!(healthy(listening.address).await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::join!(trickle, others);
    assert_eq!(status(&mut body).await, Some(408), "the body did not arrive in time");
    assert!(closed(head).await, "a head that never ends");
    assert!(closed(silent).await, "a connection that says nothing");
    assert!(healthy(listening.address).await);
}

/// Whether the other side closes the connection soon.
async fn closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    tokio::time::timeout(Duration::from_secs(3), stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_megabytes_are_refused_without_being_kept() {
    let service = Service::new();
    let listening = Listening::start(&service).await;
    let mut stream = TcpStream::connect(listening.address).await.unwrap();
    let length = 100 << 20;
    let head = format!(
        "POST /v1/recommend HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let part = vec![b' '; 1 << 16];
    let mut sent = 0;
    // The service stops reading long before the end; then the connection is closed under the sender.
    while sent < length && stream.write_all(&part).await.is_ok() {
        sent += part.len();
    }
    assert!(sent < 50 << 20, "{sent} bytes were taken");
    assert!(healthy(listening.address).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_connections_leave_the_service_answering() {
    let limits = Limits { connections: 600, ..Limits::default() };
    let service = Service::with(Options { limits, threads: 1, ..Options::default() }, false);
    let listening = Listening::start(&service).await;
    let mut open = Vec::new();
    // Both ends are in this process: two files each.
    for _ in 0..500 {
        open.push(TcpStream::connect(listening.address).await.unwrap());
    }
    assert!(healthy(listening.address).await, "within the bound");
    for _ in 0..150 {
        open.extend(TcpStream::connect(listening.address).await);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!healthy(listening.address).await, "beyond the bound, connections are closed at once");
    drop(open);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(healthy(listening.address).await, "and taken again when there is room");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_may_wait_is_answered_429_with_when_to_come_again() {
    let limits = Limits { in_flight: 1, ..Limits::default() };
    let service = Service::with(Options { limits, threads: 1, ..Options::default() }, false);
    let listening = Listening::start(&service).await;
    let items: Vec<u32> = (0..400).collect();
    let heavy = serde_json::json!({ "history": items, "explain": true, "n": 400, "exclude_seen": false, "diversity": 0.5 });
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let mut set = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (address, text) = (listening.address, request(&heavy.to_string()));
            set.spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(text.as_bytes()).await.unwrap();
                status(&mut stream).await
            });
        }
        while let Some(answer) = set.join_next().await {
            seen.insert(answer.unwrap());
        }
        if seen.len() > 1 {
            break;
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [Some(200), Some(429)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_finishes_the_requests_in_flight() {
    let service = Service::new();
    let listening = Listening::start(&service).await;
    let mut stream = TcpStream::connect(listening.address).await.unwrap();
    let text = request("{\"n\": 5}");
    let (first, rest) = text.split_at(text.len() - 3);
    stream.write_all(first.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    listening.stop.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(TcpStream::connect(listening.address).await.is_err(), "no new connections");
    stream.write_all(rest.as_bytes()).await.unwrap();
    assert_eq!(status(&mut stream).await, Some(200));
    tokio::time::timeout(Duration::from_secs(5), listening.done).await.unwrap().unwrap();
}
