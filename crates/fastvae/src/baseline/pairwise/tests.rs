use super::*;
use crate::baseline::tests::random_interactions;
use crate::math::simd::level;
use crate::train::Control;
use fearless_simd::dispatch;

const PAIRWISE: [Kind; 6] = [Kind::Bpr, Kind::Warp, Kind::Aobpr, Kind::Dns, Kind::Pris, Kind::Sa];

fn small(kind: Kind) -> PairwiseSettings {
    let mut settings = PairwiseSettings { factors: 10, epochs: 12, batch: 64, ..PairwiseSettings::of(kind) };
    settings.learning_rate = 0.02;
    if settings.clusters.is_some() {
        settings.clusters = Some(4);
    }
    if settings.rank_scale.is_some() {
        settings.rank_scale = Some(8.0);
    }
    settings
}

#[test]
fn losses_fall() {
    let data = random_interactions(150, 60, false);
    for (kind, plain) in PAIRWISE.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let mut settings = small(kind);
        if plain {
            // The weights of `warp` grow with the rank.
            let rate = if kind == Kind::Warp { 0.01 } else { 0.2 };
            (settings.optimizer, settings.learning_rate) = (PairwiseOptimizer::Sgd, rate);
        }
        let mut losses = Vec::new();
        fit(&data, kind, &settings, &mut |progress| {
            losses.extend(progress.loss);
            Control::Continue
        })
        .unwrap();
        assert_eq!(losses.len(), 12);
        let share = if plain { 0.95 } else { 0.9 };
        assert!(losses[11] < share * losses[0], "{kind} {:?}: {losses:?}", settings.optimizer);
    }
}

#[test]
fn plain_steps_go_down_the_gradient_and_nowhere_else() {
    let gradient: Vec<f32> = (0..32).map(|at| at as f32 - 10.0).collect();
    let (mut row, mut first, mut second) = (vec![1.0; 32], vec![0.0; 32], vec![0.0; 32]);
    let mover = Mover::at(PairwiseOptimizer::Sgd, 0.5, 7);
    dispatch!(level(), simd => mover.row(simd, &mut row, &mut first, &mut second, &gradient));
    assert!(row.iter().zip(&gradient).all(|(row, gradient)| (row - (1.0 - 0.5 * gradient)).abs() < 1e-6));
    assert!(first.iter().chain(&second).all(|moment| *moment == 0.0));
}

#[test]
fn vectors_do_not_depend_on_the_number_of_threads() {
    let data = random_interactions(300, 200, false);
    for kind in PAIRWISE {
        let settings = PairwiseSettings { epochs: 2, batch: 1000, ..small(kind) };
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let factors = pool.install(|| {
                let mut quiet = |_| Control::Continue;
                fit(&data, kind, &settings, &mut quiet).unwrap()
            });
            format!("{:?}", crate::eval::Scorer::item_table(&factors).unwrap().vectors.data())
        };
        assert_eq!(on(1), on(3), "{kind}");
    }
}

/// The loss and the gradient of the user's vector by finite differences, negatives and weights held still.
#[test]
fn pulls_are_the_slopes_of_the_loss() {
    for x in [-30.0f32, -2.0, -0.1, 0.0, 0.3, 4.0, 30.0] {
        let (loss, pull) = logistic(x);
        let f = |x: f64| (-x).exp().ln_1p();
        assert!((f64::from(loss) - f(f64::from(x))).abs() < 1e-5 * (1.0 + f(f64::from(x))), "{x}");
        let slope = (f(f64::from(x) + 1e-5) - f(f64::from(x) - 1e-5)) / 2e-5;
        assert!((f64::from(pull) + slope).abs() < 1e-4, "{x}: {pull} {slope}");
    }
}

#[test]
fn weights_of_uniform_draws_are_their_softmax() {
    let values: Vec<f32> = (0..40).map(|k| (k as f32 * 0.7).sin()).collect();
    let items = Matrix::from_rows(40, 1, &values);
    let mut query = [0.0; 16];
    query[0] = 1.5;
    let pair = Pair { query: &query, item: 3, seen: &[3, 9], items: &items };
    let method = bpr::SelfAdversarial { n: 25, temperature: 0.5 };
    let mut pulls = Pulls::default();
    let mut stream = Stream::new(0, Purpose::Negatives, 0, 0);
    dispatch!(level(), simd => method.pull(simd, &pair, &mut stream, &mut pulls));
    assert!(pulls.entries.len() > 20 && pulls.entries.iter().all(|&(item, _)| item != 3 && item != 9));
    let score = |item: ItemId| f64::from(values[item as usize]) * 1.5;
    let sum: f64 = pulls.entries.iter().map(|&(item, _)| (score(item) / 0.5).exp()).sum();
    for &(item, strength) in &pulls.entries {
        let expected = (score(item) / 0.5).exp() / sum / (1.0 + (score(3) - score(item)).exp());
        assert!((f64::from(strength) - expected).abs() < 1e-5, "{item}");
    }
}

/// Importance weights make an average over clustered draws that of the softmax.
#[test]
fn clustered_draws_estimate_the_softmax() {
    let mut stream = Stream::new(4, Purpose::Initialise, 0, 0);
    let values: Vec<f32> = (0..120 * 6).map(|_| stream.normal() as f32 * 0.6).collect();
    let items = Matrix::from_rows(120, 6, &values);
    let counts: Vec<u32> = (0..120).map(|k| 1 + k % 17).collect();
    let mut method = pris::Clustered::new(4000, 8, 1.0, &counts, 1);
    method.refresh(&items, &items, 0);
    let mut query = [0.0; 16];
    query[..6].copy_from_slice(&values[30..36]);
    let pair = Pair { query: &query, item: 0, seen: &[0], items: &items };
    let mut pulls = Pulls::default();
    let mut stream = Stream::new(0, Purpose::Negatives, 0, 0);
    dispatch!(level(), simd => method.pull(simd, &pair, &mut stream, &mut pulls));
    let score = |item: usize| simd::dot(&query, items.row(item));
    let sum: f64 = (1..120).map(|item| f64::from(score(item)).exp()).sum();
    let mut got = [0.0f64; 120];
    for &(item, strength) in &pulls.entries {
        let (_, pull) = logistic(score(0) - score(item as usize));
        got[item as usize] += f64::from(strength / pull);
    }
    assert!((got.iter().sum::<f64>() - 1.0).abs() < 1e-3);
    for item in 1..120 {
        let expected = f64::from(score(item)).exp() / sum;
        // A share p from 4000 draws has a deviation of about sqrt(p w / 4000), weights w up to about 6: five of them.
        let tolerance = 5.0 * (expected * 6.0 / 4000.0).sqrt() + 1e-4;
        assert!((got[item] - expected).abs() < tolerance, "{item}: {} {expected}", got[item]);
    }
}
