//! The contract of the CUDA backend, against the CPU's. Run where there is a GPU:
//! `cargo test -p fastvae --features cuda -- --ignored cuda`.

use std::io::Read;

use super::*;
use crate::backend::CpuBackend;
use crate::config::{Estimator, Kl, MomentKind, Optimizer, Quantizer};
use crate::data::{GenerateOptions, generate};
use crate::math::Matrix;
use crate::optim::Moments;

#[test]
fn the_kernels_are_compiled_from_their_sources() {
    const SOURCES: [&[u8]; 10] = [
        include_bytes!("kernels/state.cuh"),
        include_bytes!("kernels/random.cuh"),
        include_bytes!("kernels/product.cuh"),
        include_bytes!("kernels/encode.cu"),
        include_bytes!("kernels/draw.cu"),
        include_bytes!("kernels/loss.cu"),
        include_bytes!("kernels/rows.cu"),
        include_bytes!("kernels/index.cu"),
        include_bytes!("kernels/rank.cu"),
        include_bytes!("kernels/full_softmax.cu"),
    ];
    let bytes = SOURCES.iter().flat_map(|source| source.iter());
    let digest = bytes.fold(0xcbf2_9ce4_8422_2325u64, |value, &byte| {
        (value ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mut ptx = String::new();
    flate2::read::GzDecoder::new(device::KERNELS).read_to_string(&mut ptx).unwrap();
    let first = ptx.lines().next().unwrap();
    assert_eq!(first, format!("// sources: {digest:016x}"), "run kernels/build and commit what it writes");
    assert!(KERNELS.iter().all(|name| ptx.contains(&format!(".entry {name}("))));
}

fn data(weighted: bool) -> Arc<Interactions> {
    let options =
        GenerateOptions { users: 70, items: 90, interactions: 900, seed: 3, ..GenerateOptions::default() };
    let plain = generate(options).unwrap();
    if !weighted {
        return Arc::new(plain.binarized());
    }
    let weights = (0..plain.n_interactions()).map(|i| 0.5 + (i % 5) as f32 * 0.5).collect();
    Arc::new(
        Interactions::from_parts(
            plain.offsets().to_vec(),
            plain.items().to_vec(),
            Some(weights),
            None,
            plain.user_ids().clone(),
            plain.item_ids().clone(),
        )
        .unwrap(),
    )
}

fn config(proposal: ProposalKind) -> Config {
    Config {
        proposal,
        hidden: 24,
        latent: 12,
        negatives: 70,
        codewords: 5,
        batch: 16,
        epochs: 3,
        seed: 11,
        kl: Kl { beta: None, gamma: Some(0.05), anneal_steps: 6 },
        ..Config::default()
    }
}

fn order(train: &Interactions) -> Vec<UserId> {
    (0..train.n_users() as u32).filter(|&user| !train.row(user as usize).items.is_empty()).collect()
}

/// The largest difference, over the largest value.
fn difference(a: &Matrix, b: &Matrix) -> f32 {
    let largest = a.data().iter().fold(0.0f32, |top, v| top.max(v.abs()));
    let apart = a.data().iter().zip(b.data()).fold(0.0f32, |top, (a, b)| top.max((a - b).abs()));
    apart / largest.max(1e-12)
}

/// The first moments of a table, as floats, the second ones, and how far the first may differ: compact ones are rounded
/// to eight bits.
fn both(moments: &Moments) -> (Matrix, Matrix, f32) {
    let first = &moments.first;
    if !moments.is_compact() {
        return (first.clone(), moments.second.clone(), 2e-3);
    }
    let halves = |word: &f32| [word.to_bits() & 0xffff_0000, word.to_bits() << 16].map(f32::from_bits);
    let floats: Vec<f32> = first.data().iter().flat_map(halves).collect();
    let second: Vec<f32> = moments.rows.iter().map(|row| row.second).collect();
    (
        Matrix::from_rows(first.rows(), 2 * first.stride(), &floats),
        Matrix::from_rows(1, second.len(), &second),
        8e-3,
    )
}

fn moments(state: &RunState) -> Vec<(&'static str, (Matrix, Matrix, f32))> {
    state.moments.as_ref().into_iter().map(|(name, moments)| (name, both(moments))).collect()
}

/// A run of `config` that is about to begin, its users in order.
fn beginning(config: &Config, train: &Interactions) -> RunState {
    RunState { order: order(train), ..RunState::new(config, train).unwrap() }
}

/// A backend on the first GPU with its state.
fn on_gpu(config: &Config, train: &Arc<Interactions>) -> (CudaBackend, RunState) {
    let state = beginning(config, train);
    (CudaBackend::new(config, train.clone(), &state, 0).unwrap(), state)
}

/// The batches of an epoch, by their places in its order.
fn batches(config: &Config, state: &RunState) -> Vec<Range<usize>> {
    let n = state.order.len();
    (0..n).step_by(config.batch).map(|first| first..n.min(first + config.batch)).collect()
}

/// Trains both for two epochs, the index of each epoch built on the device, and compares each step.
fn compare(config: &Config, train: &Arc<Interactions>) {
    let (mut gpu, mut device) = on_gpu(config, train);
    let (mut cpu, mut host) = (CpuBackend::new(config, train.clone()), beginning(config, train));
    let mut step = 0;
    for epoch in 0..2 {
        gpu.refresh(&mut device, epoch).unwrap();
        gpu.download(&mut device, Part::Everything).unwrap();
        // What is drawn from may change only while the tables are in the order of the items.
        cpu.download(&mut host, Part::Everything).unwrap();
        let state = device.proposal.as_ref().map(|proposal| proposal.state());
        match (&mut host.proposal, state) {
            (Some(proposal), Some(state)) if !state.is_empty() => proposal.restore(state).unwrap(),
            _ => cpu.refresh(&mut host, epoch).unwrap(),
        }
        for batch in batches(config, &device) {
            let context = StepContext { epoch, step };
            gpu.begin_epoch(&device, context, batch.start).unwrap();
            let mut seen = gpu.step(&mut device, batch.clone(), context).unwrap();
            seen += gpu.end_epoch().unwrap();
            let expected = cpu.step(&mut host, batch, context).unwrap();
            let apart = |a: f64, b: f64| (a - b).abs() / b.abs().max(1e-3);
            for (name, a, b) in [
                ("likelihood", seen.likelihood_loss, expected.likelihood_loss),
                ("kl", seen.kl, expected.kl),
                ("weighted kl", seen.weighted_kl, expected.weighted_kl),
            ] {
                assert!(apart(a, b) < 2e-4, "epoch {epoch} step {step}: {name} {a}, on the CPU {b}");
            }
            gpu.download(&mut device, Part::Everything).unwrap();
            cpu.download(&mut host, Part::Everything).unwrap();
            for ((name, a), (_, b)) in moments(&device).into_iter().zip(moments(&host)) {
                let [first, second] = [difference(&b.0, &a.0), difference(&b.1, &a.1)];
                assert!(first < a.2, "epoch {epoch} step {step}: the gradients of {name} differ by {first}");
                assert!(second < 5e-3, "epoch {epoch} step {step}: the squares of {name} differ by {second}");
            }
            step += 1;
        }
    }
    for (name, (a, b)) in device.parameters.as_ref().zip(host.parameters.as_ref()) {
        assert!(!["encoder", "items"].contains(&name) || difference(b, a) < 1e-2, "{name}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_steps_equal_the_cpus_for_every_proposal_and_estimator() {
    for proposal in [
        ProposalKind::MidxPopularity,
        ProposalKind::MidxUniform,
        ProposalKind::MidxExact,
        ProposalKind::Softmax,
        ProposalKind::Uniform,
        ProposalKind::Popularity,
    ] {
        for estimator in [Estimator::Sampled, Estimator::Stratified] {
            println!("{proposal:?} {estimator:?}");
            compare(&Config { estimator, ..config(proposal) }, &data(false));
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_steps_equal_the_cpus_for_other_settings() {
    use crate::config::Activation;
    let base = config(ProposalKind::MidxPopularity);
    for (name, config, weighted) in [
        ("weights", base.clone(), true),
        ("two latent draws", Config { latent_samples: 2, ..base.clone() }, false),
        ("tanh", Config { activation: Activation::Tanh, ..base.clone() }, false),
        ("dense Adam", Config { optimizer: Optimizer::Adam, ..base.clone() }, false),
        ("full moments", Config { moments: MomentKind::Full, ..base.clone() }, false),
        (
            "full moments, dense Adam",
            Config { moments: MomentKind::Full, optimizer: Optimizer::Adam, ..base.clone() },
            false,
        ),
        ("decoupled decay", Config { weight_decay_mode: WeightDecayMode::Decoupled, ..base.clone() }, false),
        (
            "no dropout, beta",
            Config { dropout: 0.0, kl: Kl { beta: Some(0.3), ..Kl::default() }, ..base.clone() },
            false,
        ),
        ("wide", Config { latent: 70, hidden: 300, codewords: 20, ..base.clone() }, false),
        ("very wide", Config { latent: 300, hidden: 40, ..base.clone() }, false),
        ("residual", Config { quantizer: Quantizer::Residual, ..base.clone() }, false),
        ("full softmax", Config { model: ModelKind::MultVae, ..base.clone() }, false),
        (
            "full softmax, weights, two latent draws",
            Config { model: ModelKind::MultVae, latent_samples: 2, latent: 40, ..base },
            true,
        ),
    ] {
        println!("{name}");
        compare(&config, &data(weighted));
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_runs_repeat_bit_for_bit_and_resume() {
    let train = data(false);
    let config = config(ProposalKind::MidxPopularity);
    let run = |stop: Option<usize>| {
        let (mut gpu, mut state) = on_gpu(&config, &train);
        let mut step = 0;
        for epoch in 0..3 {
            if stop == Some(epoch) {
                gpu.download(&mut state, Part::Everything).unwrap();
                let mut other = beginning(&config, &train);
                other.parameters = state.parameters.clone();
                other.moments = state.moments.as_ref().map(|_, moments| moments.clone());
                other.proposal.as_mut().unwrap().restore(state.proposal.unwrap().state()).unwrap();
                state = other;
                gpu.restart(&config, train.clone(), &state).unwrap();
            }
            gpu.refresh(&mut state, epoch).unwrap();
            gpu.begin_epoch(&state, StepContext { epoch, step }, 0).unwrap();
            for batch in batches(&config, &state) {
                gpu.step(&mut state, batch, StepContext { epoch, step }).unwrap();
                step += 1;
            }
            gpu.end_epoch().unwrap();
        }
        gpu.download(&mut state, Part::Parameters).unwrap();
        state.parameters
    };
    let (first, second, resumed) = (run(None), run(None), run(Some(2)));
    for other in [second, resumed] {
        for (name, (a, b)) in first.as_ref().zip(other.as_ref()) {
            assert_eq!(a.data(), b.data(), "{name}");
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_ranks_as_the_cpu_does() {
    let train = data(false);
    let config = config(ProposalKind::Uniform);
    let (mut gpu, state) = on_gpu(&config, &train);
    let users = order(&train);
    let k = 20;
    let on_device = gpu.rank(None, &train, &users, k).unwrap().unwrap();
    let parameters = &state.parameters;
    assert_eq!(on_device, gpu.rank(Some(parameters), &data(false), &users, k).unwrap().unwrap());
    let mut here = Vec::new();
    let row = |at: usize| train.row(users[at] as usize);
    crate::eval::rank(
        parameters.network(config.activation),
        users.len(),
        row,
        |at| row(at).items,
        k,
        |rankings| {
            let lists = rankings.iter().map(|(_, best)| best.iter().map(|s| s.item).collect::<Vec<_>>());
            lists.collect::<Vec<_>>()
        },
        |lists| {
            here.extend(lists);
            Ok(())
        },
    )
    .unwrap();
    let lists = on_device.chunks(k).zip(&here);
    let same = lists.filter(|(a, b)| a.iter().zip(*b).all(|(a, b)| a == b)).count();
    // Sums in another order may swap neighbours.
    assert!(same * 100 >= users.len() * 95, "{same} of {} lists agree", users.len());
    for (list, &user) in on_device.chunks(k).zip(&users) {
        let seen = train.row(user as usize).items;
        assert!(list.iter().all(|item| *item != ItemId::MAX && seen.binary_search(item).is_err()));
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_codes_the_items_as_the_cpu_does() {
    for quantizer in [Quantizer::Product, Quantizer::Residual] {
        let config = Config { quantizer, ..config(ProposalKind::MidxUniform) };
        let train = data(false);
        let (mut gpu, mut device) = on_gpu(&config, &train);
        let (mut cpu, mut host) = (CpuBackend::new(&config, train.clone()), beginning(&config, &train));
        let codes = |state: &RunState| state.proposal.as_ref().unwrap().index().unwrap().codes().to_vec();
        for epoch in 0..2 {
            gpu.refresh(&mut device, epoch).unwrap();
            gpu.download(&mut device, Part::Everything).unwrap();
            cpu.refresh(&mut host, epoch).unwrap();
            let (on_device, here) = (codes(&device), codes(&host));
            let same = on_device.iter().zip(&here).filter(|(a, b)| a == b).count();
            assert!(same * 100 >= here.len() * 95, "{same} of {} codes agree", here.len());
        }
    }
}
