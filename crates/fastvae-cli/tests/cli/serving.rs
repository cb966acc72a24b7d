//! `fastvae serve` while it runs: its key, reloads by signal and by watching, memory, many connections, the end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastvae::Model;
use fastvae::config::Config;
use fastvae::data::IdMap;
use fastvae::internals::model::ModelInternals;
use fastvae::internals::network::Parameters;
use serde_json::Value;

use crate::Place;
use crate::serve::with_model;

/// A service that is another process; it is ended when this goes.
struct Running {
    process: Child,
    address: String,
}

impl Running {
    /// Serves `m.fastvae`; the log goes to `log.txt`.
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fastvae"));
        command.args(["-q", "serve", "m.fastvae", "--port", "0"]).args(arguments);
        Self::spawn(place, command)
    }

    fn spawn(place: &Place, mut command: Command) -> Self {
        let log = std::fs::File::create(place.path("log.txt")).unwrap();
        let mut process = command
            .env("FASTVAE_API_KEY", "secret")
            .current_dir(place.path(""))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        Self { address: address.expect("the service says where it is").to_string(), process }
    }

    fn ask(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!("{head} HTTP/1.1\r\nhost: a\r\nx-api-key: secret\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn generation(&self) -> u64 {
        let answer = self.ask("GET /v1/model");
        let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        body["generation"].as_u64().unwrap()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Kilobytes of memory, as the system counts them.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn stop(mut self) {
        self.signal("-TERM");
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until `so` holds.
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Puts another file in the place of the model, as `fastvae train` does.
fn replace(place: &Place, bytes: &[u8]) {
    std::fs::write(place.path("next"), bytes).unwrap();
    std::fs::rename(place.path("next"), place.path("m.fastvae")).unwrap();
}

#[test]
fn a_service_answers_with_its_key_and_stops_in_order() {
    let place = with_model();
    let service = Running::start(&place, &[]);
    let answer = service.ask("GET /api/recommend/3?n=2");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut stream = TcpStream::connect(&service.address).unwrap();
    stream
        .write_all(b"GET /v1/model HTTP/1.1\r\nhost: a\r\nx-api-key: guess\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    service.stop();
    assert!(!std::fs::read_to_string(place.path("log.txt")).unwrap().contains("secret"));
}

#[test]
fn a_hangup_loads_the_file_again_and_a_bad_file_keeps_the_old_model_and_says_why() {
    let place = with_model();
    let model = std::fs::read(place.path("m.fastvae")).unwrap();
    let service = Running::start(&place, &[]);
    assert_eq!(service.generation(), 1);
    service.signal("-HUP");
    eventually("a hangup loads the model", || service.generation() == 2);
    let log = || std::fs::read_to_string(place.path("log.txt")).unwrap();
    replace(&place, &model[..model.len() / 2]);
    service.signal("-HUP");
    eventually("a refusal is in the log", || log().contains("was not reloaded"));
    assert!(log().contains("m.fastvae"), "{}", log());
    let refused = service.ask("POST /v1/reload");
    assert!(refused.starts_with("HTTP/1.1 409"), "{refused}");
    assert!(refused.contains("the old one stays") && refused.contains("m.fastvae"), "{refused}");
    assert_eq!(service.generation(), 2);
    assert!(service.ask("GET /api/recommend/3?n=2").starts_with("HTTP/1.1 200"));
    replace(&place, &model);
    assert!(service.ask("POST /v1/reload").starts_with("HTTP/1.1 200"));
    assert_eq!(service.generation(), 3);
    service.stop();
}

#[test]
fn a_watched_file_is_loaded_when_it_changes_and_only_then() {
    let place = with_model();
    let model = std::fs::read(place.path("m.fastvae")).unwrap();
    let service = Running::start(&place, &["--watch"]);
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(service.generation(), 1, "nothing changed");
    replace(&place, &model);
    eventually("the new file is loaded", || service.generation() == 2);
    replace(&place, b"not a model");
    eventually("the refusal is in the log", || {
        std::fs::read_to_string(place.path("log.txt")).unwrap().contains("was not reloaded")
    });
    assert_eq!(service.generation(), 2);
    replace(&place, &model);
    eventually("a good file is loaded after a bad one", || service.generation() == 3);
    service.stop();
}

/// A model whose item table is large enough to be seen among a process's memory.
fn save_large_model(path: &Path) {
    let config = Config { hidden: 64, latent: 64, ..Config::default() };
    let n_items = 40_000;
    let parameters = Parameters::random(&config, n_items);
    let ids = Arc::new(IdMap::range(n_items));
    let model = Model::of_parameters(&config, parameters, ids, vec![1; n_items]).unwrap();
    model.save(path).unwrap();
}

#[test]
fn ten_reloads_under_load_fail_no_request_and_memory_returns_to_its_level() {
    let place = Place::new();
    save_large_model(&place.path("m.fastvae"));
    let service = Running::start(&place, &[]);
    let (going, answered) = (AtomicBool::new(true), AtomicUsize::new(0));
    let (before, after) = std::thread::scope(|scope| {
        for client in 0..4 {
            let (going, answered, service) = (&going, &answered, &service);
            scope.spawn(move || {
                let mut stream = BufReader::new(TcpStream::connect(&service.address).unwrap());
                let body = format!("{{\"history\": [{client}, 17], \"n\": 20}}");
                let head = "POST /v1/recommend HTTP/1.1\r\nhost: a\r\nx-api-key: secret\r\ncontent-type: application/json";
                while going.load(Ordering::Relaxed) {
                    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    stream.get_mut().write_all(request.as_bytes()).unwrap();
                    assert_eq!(status(&mut stream), "HTTP/1.1 200 OK");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let reload = || {
            replace(&place, &std::fs::read(place.path("m.fastvae")).unwrap());
            let answer = service.ask("POST /v1/reload");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            // Until the new model is in use and the old one gone.
            let so_far = answered.load(Ordering::Relaxed);
            eventually("requests go on", || answered.load(Ordering::Relaxed) > so_far + 20);
        };
        // The first loads fill what the allocator keeps.
        (0..2).for_each(|_| reload());
        let before = service.memory();
        (0..10).for_each(|_| reload());
        let after = service.memory();
        going.store(false, Ordering::Relaxed);
        (before, after)
    });
    assert_eq!(service.generation(), 13);
    let model = std::fs::metadata(place.path("m.fastvae")).unwrap().len() / 1024;
    println!("{} answered; {before} kB before, {after} kB after, model {model} kB", answered.into_inner());
    // One old model may be on its way out; ten that stayed would be ten item tables of half the file.
    assert!(after < before + model, "{before} kB before, {after} kB after, a model is {model} kB");
    service.stop();
}

/// Reads an answer and gives its first line.
fn status(stream: &mut BufReader<TcpStream>) -> String {
    let (mut first, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the connection ended after {first:?}");
        let line = line.trim_end();
        if first.is_empty() {
            first = line.to_string();
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    stream.read_exact(&mut vec![0; length]).unwrap();
    first
}

/// Files that this process may have open, after asking for as many as it may ask for.
fn open_files() -> u64 {
    // SAFETY: rlimit is a plain C struct for which all zeros is a value; the calls read and write only it.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        limit.rlim_max
    }
}

#[test]
fn ten_thousand_connections_at_once_leave_the_service_answering() {
    const MANY: usize = 10_000;
    if open_files() < MANY as u64 + 300 {
        println!("skipped: this system allows {} open files; {MANY} connections need more", open_files());
        return;
    }
    let place = with_model();
    // Started with few files, as most systems do: the service asks for more itself.
    let mut command = Command::new("sh");
    let serve = "ulimit -Sn 1024 && exec \"$0\" -q serve m.fastvae --port 0 --timeout 120";
    command.args(["-c", serve, env!("CARGO_BIN_EXE_fastvae")]);
    let service = Running::spawn(&place, command);
    let before = service.memory();
    let mut open: Vec<TcpStream> = (0..MANY).map(|_| TcpStream::connect(&service.address).unwrap()).collect();
    let started = Instant::now();
    assert!(service.ask("GET /api/recommend/3?n=2").starts_with("HTTP/1.1 200"), "others are answered");
    let answered = started.elapsed();
    let files = std::fs::read_dir(format!("/proc/{}/fd", service.process.id())).unwrap().count();
    assert!(files > MANY, "{files} files are open");
    for stream in open.drain(..).step_by(97) {
        let mut stream = BufReader::new(stream);
        stream.get_mut().write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        assert_eq!(status(&mut stream), "HTTP/1.1 200 OK", "and so are those that waited");
    }
    let after = service.memory();
    println!("answered in {answered:?} beside {MANY} connections, for {} kB", after.saturating_sub(before));
    eventually("closed connections are let go", || {
        std::fs::read_dir(format!("/proc/{}/fd", service.process.id())).unwrap().count() < 100
    });
    service.stop();
}
