//! How a training is going: a bar on a terminal, otherwise a log line for each epoch.

use fastvae::train::{EpochRecord, Event, StepProgress, Training};
use indicatif::{ProgressBar, ProgressStyle};

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
        let epochs = training.config().epochs;
        let bar = logging::shows_bars().then(|| {
            let bar = ProgressBar::new(epochs as u64 * PARTS);
            let style = ProgressStyle::with_template("{bar:20} {msg}, at most {eta} left")
                .expect("the template is a constant");
            bar.set_style(style.progress_chars("=> "));
            bar.set_position(training.records().len() as u64 * PARTS);
            bar.reset_eta();
            logging::bars().add(bar)
        });
        Self { bar, epochs, validation: training.best().map(|b| b.value) }
    }

    /// Shows one event.
    pub fn show(&mut self, event: &Event<'_>) {
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
            bar.set_message(self.message(step.epoch, step.loss, step.kl, step.users_per_second));
        }
    }

    fn show_epoch(&mut self, record: &EpochRecord) {
        self.validation = record.validation.or(self.validation);
        if let Some(bar) = &self.bar {
            bar.set_position(record.epoch as u64 * PARTS);
            bar.set_message(self.message(record.epoch, record.loss, record.kl, record.users_per_second));
            return;
        }
        let validation = record.validation.map(|value| format!(" ndcg@50={value:.4}")).unwrap_or_default();
        let sampling = record.proposal.map_or_else(String::new, |p| {
            format!(" kl_to_softmax={:.3} effective_share={:.3}", p.kl_to_softmax, p.effective_sample_share)
        });
        tracing::info!(
            "epoch={}/{} loss={:.4} kl={:.4}{validation} users_per_second={:.0} seconds={:.3}{sampling}",
            record.epoch,
            self.epochs,
            record.loss,
            record.kl,
            record.users_per_second,
            record.seconds,
        );
    }

    fn message(&self, epoch: usize, loss: f64, kl: f64, users_per_second: f64) -> String {
        let ndcg = self.validation.map(|value| format!("  NDCG@50 {value:.4}")).unwrap_or_default();
        format!(
            "epoch {epoch}/{}  loss {loss:.2}  KL {kl:.2}{ndcg}  {} users/s",
            self.epochs,
            thousands(users_per_second as u64)
        )
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
