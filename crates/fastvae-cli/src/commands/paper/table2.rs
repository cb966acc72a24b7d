//! Table 2: quality against the baselines.

use anyhow::Result;
use fastvae::baseline::Settings;
use fastvae::internals::eval::evaluate;
use fastvae::train::Finish;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::curve::{self, Curve, NDCG, Point, RECALL};
use super::datasets::{DATASETS, Dataset, Trial};
use super::page::{Finding, Page, Table, Verdict};
use super::session::{Effort, Job, Session};
use super::tuning::{self, Candidate, Setting};
use crate::display::Spread;
use crate::failure::usage;
use crate::fit::fit_baseline;
use crate::plot::{Bar, Bars, bars};

/// Models in the order of the paper, with its NDCG@50 and recall@50 on ML10M, Gowalla, Amazon and Netflix.
const MODELS: [(&str, [(f64, f64); 4]); 9] = [
    ("wrmf", [(0.3194, 0.4967), (0.1316, 0.2223), (0.0919, 0.1802), (0.3020, 0.3653)]),
    ("bpr", [(0.2915, 0.4642), (0.1216, 0.1978), (0.0740, 0.1441), (0.2742, 0.3283)]),
    ("warp", [(0.2968, 0.4785), (0.1273, 0.2073), (0.0798, 0.1615), (0.2953, 0.3539)]),
    ("aobpr", [(0.2934, 0.4753), (0.1385, 0.2369), (0.0906, 0.1763), (0.2952, 0.3560)]),
    ("dns", [(0.3153, 0.4988), (0.1622, 0.2761), (0.1119, 0.2186), (0.2974, 0.3594)]),
    ("pris", [(0.3162, 0.4937), (0.1657, 0.2736), (0.1189, 0.2244), (0.2975, 0.3608)]),
    ("sa", [(0.3237, 0.5066), (0.1704, 0.2866), (0.1378, 0.2401), (0.3177, 0.3784)]),
    ("mult-vae", [(0.3206, 0.5037), (0.1751, 0.2911), (0.1441, 0.2483), (0.3227, 0.3841)]),
    ("fastvae", [(0.3275, 0.5078), (0.1797, 0.2971), (0.1404, 0.2434), (0.3238, 0.3845)]),
];
/// What one model reached in one trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Reached {
    ndcg: f64,
    recall: f64,
    seconds: f64,
    cpu_seconds: f64,
    /// What trained it, in words.
    device: String,
}

/// One model on one dataset.
#[derive(Debug)]
struct Line {
    model: &'static str,
    dataset: Dataset,
    published: (f64, f64),
    /// What was tried, each with its NDCG@50 on held-out training data; one without it was not tried.
    tried: Vec<(Candidate, Option<f64>)>,
    trials: Vec<Reached>,
}

impl Line {
    /// The best of what was tried.
    fn chosen(&self) -> &Candidate {
        let value = |tried: &&(Candidate, Option<f64>)| tried.1.unwrap_or(0.0);
        let best =
            self.tried.iter().reduce(|best, next| if value(&next) > value(&best) { next } else { best });
        &best.expect("something is tried for every model").0
    }
}

/// The page.
///
/// # Errors
/// An error of usage where none of the datasets is there; what training reports.
pub fn page(session: &Session) -> Result<Page> {
    let mut lines: Vec<Line> = Vec::new();
    let mut trials: Vec<(Dataset, Vec<Trial>)> = Vec::new();
    for (place, dataset) in DATASETS.into_iter().enumerate() {
        if !dataset.is_in(&session.data) {
            continue;
        }
        lines.extend(
            MODELS.map(|(model, published)| Line {
                model,
                dataset,
                published: published[place],
                tried: tuning::grid(session, dataset, model)
                    .into_iter()
                    .map(|candidate| (candidate, None))
                    .collect(),
                trials: Vec::new(),
            }),
        );
        let n_trials = dataset.n_trials(&session.data, session.trials);
        let of_dataset = (0..n_trials).map(|number| dataset.trial(&session.data, number));
        trials.push((dataset, of_dataset.collect::<Result<_>>()?));
    }
    if lines.is_empty() {
        return Err(usage(format!(
            "none of {} is in {}; give the directory of gowalla.mat or ml10m.mat with --data",
            DATASETS.map(|dataset| dataset.name).join(", "),
            session.data.display()
        )));
    }
    tune(session, &mut lines, &trials)?;
    measure(session, &mut lines, &trials)?;
    let (table, numbers) = tables(&lines);
    let config = session.effort.config();
    Ok(Page {
        id: "table2",
        title: "Table 2: comparison with the baselines",
        method: format!(
            "The settings of the paper's section 6.1 (32 factors; {} epochs of mult-vae and fastvae at a learning rate of \
             {}). Trial 1 is the split that comes with the data, where one does; others divide 80/20 by their number. \
             The first three digits of a single trial are meaningful; ± is the deviation over trials.{}",
            config.epochs,
            config.learning_rate,
            match session.effort {
                Effort::Full =>
                    " Each method has the settings of its grid that do best, by NDCG@50, on a fifth of the training data of \
                     the first trial; all that was tried is in the numbers.",
                Effort::Quick => " Nothing is tuned.",
            }
        ),
        table,
        numbers,
        plot: Some(plot(&lines)?),
        findings: findings(&lines),
    })
}

/// Measures all that is tried for every line, where that is more than one setting.
fn tune(session: &Session, lines: &mut [Line], trials: &[(Dataset, Vec<Trial>)]) -> Result<()> {
    let held_out =
        |(dataset, trials): &(Dataset, Vec<Trial>)| Ok((*dataset, tuning::trial(*dataset, &trials[0])?));
    let held_out: Vec<(Dataset, Trial)> = trials.iter().map(held_out).collect::<Result<_>>()?;
    let of_line = |line: &Line| {
        let found = held_out.iter().find(|(dataset, _)| *dataset == line.dataset);
        &found.expect("every dataset has its trials").1
    };
    let tuned = |line: &&Line| line.tried.len() > 1;
    let jobs = lines.iter().filter(tuned).flat_map(|line| {
        line.tried.iter().map(|(candidate, _)| job(session, of_line(line), line.model, candidate))
    });
    let mut reached = results(session, jobs.collect())?.into_iter();
    for line in lines.iter_mut().filter(|line| tuned(&&**line)) {
        line.tried.iter_mut().zip(&mut reached).for_each(|((_, value), reached)| *value = Some(reached.ndcg));
    }
    Ok(())
}

/// Fills every line with what its model reached in each of its dataset's trials.
fn measure(session: &Session, lines: &mut [Line], trials: &[(Dataset, Vec<Trial>)]) -> Result<()> {
    let of_line = |line: &Line| {
        let found = trials.iter().find(|(dataset, _)| *dataset == line.dataset);
        found.map_or(&[][..], |(_, trials)| &trials[..])
    };
    // The last ones take longest: processes that share the work end together if these come first.
    let jobs = lines
        .iter()
        .rev()
        .flat_map(|line| of_line(line).iter().map(|trial| job(session, trial, line.model, line.chosen())));
    let mut reached = results(session, jobs.collect())?.into_iter();
    for line in lines.iter_mut().rev() {
        let n_trials = of_line(line).len();
        line.trials = reached.by_ref().take(n_trials).collect();
    }
    Ok(())
}

/// The training of a model of the table: autoencoders leave curves, which figures share.
enum TableJob<'a> {
    Vae(Job<'a, Curve>),
    Baseline(Job<'a, Reached>),
}

/// What each job reached, in their order.
fn results(session: &Session, jobs: Vec<TableJob<'_>>) -> Result<Vec<Reached>> {
    let is_vae: Vec<bool> = jobs.iter().map(|job| matches!(job, TableJob::Vae(_))).collect();
    let (mut curves, mut baselines) = (Vec::new(), Vec::new());
    for job in jobs {
        match job {
            TableJob::Vae(job) => curves.push(job),
            TableJob::Baseline(job) => baselines.push(job),
        }
    }
    // All is taken up before one process waits for another.
    session.take_up(&baselines)?;
    let mut curves = session.results(&curves)?.into_iter().map(Reached::from);
    let mut baselines = session.results(&baselines)?.into_iter();
    let next = |is_vae| if is_vae { curves.next() } else { baselines.next() };
    Ok(is_vae.into_iter().map_while(next).collect())
}

fn job<'a>(session: &Session, trial: &'a Trial, model: &str, candidate: &Candidate) -> TableJob<'a> {
    let slug: String =
        candidate.label.split([' ', ',']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    match &candidate.setting {
        Setting::Vae(config) => {
            let job = curve::job(session, trial, config);
            // With the preset's beta it is the curve of the figures, and has its name.
            let own = config.kl == session.effort.config().kl;
            let name = if own { job.name } else { format!("{}-{slug}", job.name) };
            TableJob::Vae(Job { name, ..job })
        }
        Setting::Baseline(settings) => {
            let mut settings = settings.clone();
            settings.set_seed(trial.seed);
            TableJob::Baseline(Job {
                name: format!("{}-{model}-{slug}", trial.name),
                task: json!({ "data": trial.fingerprint(), "settings": settings }),
                work: Box::new(move || fitted(trial, &settings)),
            })
        }
    }
}

fn fitted(trial: &Trial, settings: &Settings) -> Result<Reached> {
    let fitted = fit_baseline(&trial.train, settings, Finish::default())?;
    let evaluation = evaluate(&fitted.model, &trial.train, &trial.test, &[NDCG, RECALL])?;
    Ok(Reached {
        ndcg: evaluation.mean(NDCG).unwrap_or(0.0),
        recall: evaluation.mean(RECALL).unwrap_or(0.0),
        seconds: fitted.seconds,
        cpu_seconds: fitted.cpu_seconds,
        device: curve::on_threads(rayon::current_num_threads()),
    })
}

impl From<Curve> for Reached {
    fn from(curve: Curve) -> Self {
        let Point { ndcg, recall, .. } = curve.last();
        Self { ndcg, recall, seconds: curve.seconds, cpu_seconds: curve.cpu_seconds, device: curve.device }
    }
}

impl Line {
    fn spread(&self, pick: fn(&Reached) -> f64) -> Spread {
        Spread::of(&self.trials.iter().map(pick).collect::<Vec<_>>())
    }

    fn ndcg(&self) -> f64 {
        self.spread(|reached| reached.ndcg).mean
    }
}

fn tables(lines: &[Line]) -> (Table, Table) {
    let header = ["", "model", "NDCG@50", "paper", "Recall@50", "paper", "training s", "on", "settings"];
    let mut table = Table::new(&header);
    let mut numbers = Table::new(&[
        "dataset",
        "model",
        "trial",
        "settings",
        "ndcg@50",
        "recall@50",
        "seconds",
        "cpu_seconds",
        "on",
    ]);
    for line in lines {
        table.push([
            line.dataset.title.to_string(),
            line.model.to_string(),
            line.spread(|reached| reached.ndcg).to_string(),
            format!("{:.4}", line.published.0),
            line.spread(|reached| reached.recall).to_string(),
            format!("{:.4}", line.published.1),
            format!("{:.1}", line.spread(|reached| reached.seconds).mean),
            line.trials[0].device.clone(),
            line.chosen().label.clone(),
        ]);
        for (candidate, value) in &line.tried {
            let Some(value) = value else { continue };
            let known = [line.dataset.name, line.model, "tuning", &candidate.label].map(String::from);
            let unknown = [(); 4].map(|()| String::new());
            numbers.push(known.into_iter().chain([format!("{value:.6}")]).chain(unknown));
        }
        for (number, trial) in line.trials.iter().enumerate() {
            numbers.push([
                line.dataset.name.to_string(),
                line.model.to_string(),
                (number + 1).to_string(),
                line.chosen().label.clone(),
                format!("{:.6}", trial.ndcg),
                format!("{:.6}", trial.recall),
                format!("{:.3}", trial.seconds),
                format!("{:.3}", trial.cpu_seconds),
                trial.device.clone(),
            ]);
        }
    }
    (table, numbers)
}

/// The lines of each dataset.
fn by_dataset(lines: &[Line]) -> Vec<&[Line]> {
    lines.chunk_by(|a, b| a.dataset == b.dataset).collect()
}

fn plot(lines: &[Line]) -> Result<String> {
    let panel = |lines: &&[Line]| Bars {
        title: lines[0].dataset.title.to_string(),
        heading: "NDCG@50; the mark is the paper's value".into(),
        bars: lines
            .iter()
            .map(|line| Bar {
                name: line.model.to_string(),
                value: line.spread(|reached| reached.ndcg),
                reference: Some(line.published.0),
            })
            .collect(),
    };
    bars(&by_dataset(lines).iter().map(panel).collect::<Vec<_>>())
}

/// What the trials say of the difference of two models, in words; nothing where there is one trial.
fn significance(first: &Line, second: &Line) -> String {
    let differences: Vec<f64> =
        first.trials.iter().zip(&second.trials).map(|(first, second)| first.ndcg - second.ndcg).collect();
    match paired_p_value(&differences) {
        Some(p) if p < 1e-4 => format!(", p < 0.0001 over {} trials", differences.len()),
        Some(p) => format!(", p = {p:.4} over {} trials", differences.len()),
        None => String::new(),
    }
}

/// Student's paired test, two-sided: how probable a mean of `differences` as far from zero is if there is none.
///
/// In closed form for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
fn paired_p_value(differences: &[f64]) -> Option<f64> {
    let Spread { mean, deviation } = Spread::of(differences);
    let deviation = deviation.filter(|deviation| *deviation > 0.0)?;
    let n = differences.len() as f64;
    let freedom = differences.len() - 1;
    let angle = (mean.abs() * n.sqrt() / deviation / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    // 1 + 1/2 c^2 + 1.3/2.4 c^4 ... for even degrees, c + 2/3 c^3 + 2.4/3.5 c^5 ... for odd ones.
    let odd = freedom % 2;
    let first = if odd == 1 { cosine } else { 1.0 };
    let terms = std::iter::successors(Some((1, first)), |&(at, term)| {
        let factor = (2 * at - 1 + odd) as f64 / (2 * at + odd) as f64;
        Some((at + 1, term * factor * cosine * cosine))
    });
    let sum: f64 = terms.take(freedom / 2).map(|(_, term)| term).sum();
    let within = match odd {
        1 => 2.0 / std::f64::consts::PI * (angle + sine * sum),
        _ => sine * sum,
    };
    Some((1.0 - within).clamp(0.0, 1.0))
}

fn findings(lines: &[Line]) -> Vec<Finding> {
    let (mut as_good, mut best, mut wrmf) = (Vec::new(), Vec::new(), Vec::new());
    let mut texts: [Vec<String>; 3] = Default::default();
    for lines in by_dataset(lines) {
        let title = lines[0].dataset.title;
        let ndcg = |model: &str| lines.iter().find(|line| line.model == model).map_or(0.0, Line::ndcg);
        let (fast, full) = (ndcg("fastvae"), ndcg("mult-vae"));
        as_good.push(fast > 0.99 * full);
        let line = |model: &str| lines.iter().find(|line| line.model == model);
        let significance_to_full =
            line("fastvae").zip(line("mult-vae")).map(|(fast, full)| significance(fast, full));
        texts[0].push(format!(
            "{title}: {fast:.4} against {full:.4} ({:+.1} %{})",
            100.0 * (fast / full - 1.0),
            significance_to_full.unwrap_or_default()
        ));
        let rivals = lines.iter().filter(|line| !["fastvae", "mult-vae"].contains(&line.model));
        let rival = rivals.max_by(|a, b| a.ndcg().total_cmp(&b.ndcg()));
        if let Some(rival) = rival {
            best.push(fast > rival.ndcg());
            let own = lines.iter().find(|line| line.model == "fastvae");
            let significance = own.map(|own| significance(own, rival)).unwrap_or_default();
            texts[1].push(format!(
                "{title}: {fast:.4}, the best baseline is {} with {:.4}{significance}",
                rival.model,
                rival.ndcg()
            ));
        }
        wrmf.extend(["bpr", "warp"].map(|other| ndcg("wrmf") > ndcg(other)));
        let values = ["wrmf", "bpr", "warp"].map(|model| format!("{model} {:.4}", ndcg(model)));
        texts[2].push(format!("{title}: {}", values.join(", ")));
    }
    let [as_good_text, best_text, wrmf_text] = texts.map(|texts| format!("{}.", texts.join("; ")));
    vec![
        Finding {
            claim: "FastVAE does about as well as Mult-VAE, or a little better (less than 1 % behind counts).",
            verdict: Verdict::of(as_good),
            evidence: as_good_text,
        },
        Finding {
            claim: "FastVAE is ahead of every baseline without a softmax over the catalogue.",
            verdict: Verdict::of(best),
            evidence: best_text,
        },
        Finding {
            claim: "WRMF usually does better than baselines with static sampling.",
            verdict: Verdict::of(wrmf),
            evidence: wrmf_text,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_are_those_of_students_tables() {
        // Quantiles of t: 2.776 at 4 degrees of freedom and 12.706 at one leave 5 % outside, 5.841 at three 1 %.
        for (t, n, p) in [(2.776, 5, 0.05), (12.706, 2, 0.05), (5.841, 4, 0.01), (4.303, 3, 0.05)] {
            // Differences of this mean and deviation 1.
            let half = ((n - 1) as f64 / n as f64).sqrt();
            let spread: Vec<f64> = match n {
                2 => vec![half, -half],
                _ => (0..n).map(|at| at as f64).collect(),
            };
            let Spread { mean, deviation } = Spread::of(&spread);
            let scale = deviation.unwrap();
            let differences: Vec<f64> =
                spread.iter().map(|value| (value - mean) / scale + t / (n as f64).sqrt()).collect();
            let found = paired_p_value(&differences).unwrap();
            assert!((found - p).abs() < 2e-4, "{t} at {}: {found}", n - 1);
        }
        assert_eq!(paired_p_value(&[0.1]), None);
    }
}
