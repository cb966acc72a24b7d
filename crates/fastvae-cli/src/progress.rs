//! How a training is going: a bar on a terminal, otherwise a log line for each epoch or pass.

use fastvae::baseline::Kind;
use fastvae::internals::train::{Phase, TrainingInternals};
use fastvae::train::{EpochRecord, Event, StepProgress, Training};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

use crate::display::thousands;
use crate::logging;

/// Positions of the bar per epoch.
const PARTS: u64 = 1000;

/// Shows the events of one training.
pub struct Progress {
    bar: Option<ProgressBar>,
    epochs: usize,
    /// Of the last epoch that had it.
    validation: Option<f64>,
}

impl Progress {
    /// Starts to show `training`, which may stand anywhere.
    pub fn of(training: &Training) -> Self {
        let again = training.refits() && training.phase() != Phase::Choosing;
        let epochs = if again { training.refit_epochs() } else { training.config().epochs };
        let done = training.records().iter().filter(|record| record.refit == again).count();
        let bar = bar("{bar:20} {msg}, at most {eta} left", epochs as u64 * PARTS);
        if let Some(bar) = &bar {
            bar.set_position(done as u64 * PARTS);
            bar.reset_eta();
        }
        Self { bar, epochs, validation: None }
    }

    /// Shows one event.
    pub fn show(&mut self, event: &Event) {
        match event {
            Event::Step(step) => self.show_step(step),
            Event::Epoch(record) => self.show_epoch(record),
            _ => {}
        }
    }

    fn show_step(&self, step: &StepProgress) {
        if let Some(bar) = &self.bar {
            let done = PARTS * step.step as u64 / step.n_steps.max(1) as u64;
            bar.set_position((step.epoch as u64 - 1) * PARTS + done);
            bar.set_message(self.message(step.epoch, step.refit, step.loss, step.kl, step.users_per_second));
        }
    }

    fn show_epoch(&mut self, record: &EpochRecord) {
        let &EpochRecord { epoch, refit, loss, kl, users_per_second, seconds, .. } = record;
        self.validation = record.validation.or(self.validation);
        if let Some(bar) = &self.bar {
            bar.set_position(epoch as u64 * PARTS);
            bar.set_message(self.message(epoch, refit, loss, kl, users_per_second));
            return;
        }
        let validation = record.validation.map(|value| format!(" ndcg@50={value:.4}")).unwrap_or_default();
        let sampling = record.proposal.map_or_else(String::new, |p| {
            format!(" kl_to_softmax={:.3} effective_share={:.3}", p.kl_to_softmax, p.effective_sample_share)
        });
        let again = if refit { "again " } else { "" };
        tracing::info!(
            "{again}epoch={epoch}/{} loss={loss:.4} kl={kl:.4}{validation} users_per_second={users_per_second:.0} \
             seconds={seconds:.3}{sampling}",
            self.epochs,
        );
    }

    fn message(&self, epoch: usize, again: bool, loss: f64, kl: f64, users_per_second: f64) -> String {
        let ndcg = self.validation.filter(|_| !again).map(|value| format!("  NDCG@50 {value:.4}"));
        let (ndcg, all) = (ndcg.unwrap_or_default(), if again { "on everything, " } else { "" });
        format!(
            "{all}epoch {epoch}/{}  loss {loss:.2}  KL {kl:.2}{ndcg}  {} users/s",
            self.epochs,
            thousands(users_per_second as u64)
        )
    }
}

/// Shows the passes of one baseline.
pub struct PassProgress {
    bar: Option<ProgressBar>,
    kind: Kind,
}

impl PassProgress {
    /// Starts to show a training of `kind`.
    pub fn of(kind: Kind) -> Self {
        Self { bar: bar("{bar:20} {msg} {pos}/{len}, {eta} left", 1), kind }
    }

    /// Shows that `done` of `total` passes are done, with the mean loss of the last.
    pub fn show(&self, done: usize, total: usize, loss: Option<f64>) {
        let kind = self.kind;
        if let Some(bar) = &self.bar {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            let loss = loss.map(|loss| format!("  loss {loss:.4}")).unwrap_or_default();
            bar.set_message(format!("{kind}{loss}"));
        } else if done > 0 {
            let loss = loss.map(|loss| format!(" loss={loss:.4}")).unwrap_or_default();
            tracing::debug!("{kind} pass={done}/{total}{loss}");
        }
    }
}

/// A bar of this length, where there is a terminal to draw it on; it goes when it is dropped.
fn bar(template: &str, length: u64) -> Option<ProgressBar> {
    logging::shows_bars().then(|| {
        let bar = ProgressBar::new(length).with_finish(ProgressFinish::AndClear);
        let style = ProgressStyle::with_template(template).expect("the template is a constant");
        bar.set_style(style.progress_chars("=> "));
        logging::bars().add(bar)
    })
}
