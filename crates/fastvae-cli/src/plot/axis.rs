//! An axis: which values it spans, where its marks stand, and what they say.

/// How values are spread along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm; values must be positive.
    Log,
}

/// An axis over the values of a panel.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// The marked values, ascending.
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// An axis that holds all of `values` with a little room, and the marks `at` where given.
    ///
    /// Values that a logarithm cannot take are left out.
    pub(super) fn over(values: impl Iterator<Item = f64>, scale: Scale, at: Option<&[f64]>) -> Self {
        let usable = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let (mut low, mut high) = values
            .chain(at.unwrap_or_default().iter().copied())
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            (low, high) = (1.0, 2.0);
        }
        let mut axis = match scale {
            Scale::Linear => {
                let room = if high > low { 0.04 * (high - low) } else { 0.5 * high.abs().max(1.0) };
                // Nothing that is never negative gets an axis that is.
                let floor = if low >= 0.0 { (low - room).max(0.0) } else { low - room };
                Self { scale, low: floor, high: high + room, ticks: Vec::new() }
            }
            Scale::Log => {
                let room = (high / low).powf(0.05).max(1.05);
                Self { scale, low: low / room, high: high * room, ticks: Vec::new() }
            }
        };
        axis.ticks = match (at, scale) {
            (Some(at), _) => at.to_vec(),
            (None, Scale::Linear) => linear_ticks(axis.low, axis.high),
            (None, Scale::Log) => log_ticks(axis.low, axis.high),
        };
        axis
    }

    /// Where `value` stands, 0 at the low end and 1 at the high one; None where the scale has no place for it.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value > 0.0 => (value / self.low).ln() / (self.high / self.low).ln(),
            Scale::Log => return None,
        };
        place.is_finite().then_some(place)
    }

    /// What stands at the mark of `tick`.
    pub(super) fn label(&self, tick: f64) -> String {
        let step = match (self.scale, self.ticks.as_slice()) {
            (Scale::Linear, [first, second, ..]) => second - first,
            _ => tick.abs(),
        };
        number(tick, step)
    }
}

/// About five round values.
fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let raw = (high - low) / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| *step >= raw * 0.7);
    let step = step.unwrap_or(power);
    let first = (low / step).ceil() as i64;
    (first..).map(|n| n as f64 * step).take_while(|tick| *tick <= high + 1e-9 * step).collect()
}

/// Powers of ten, with 2 and 5 times them where there would be few.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let multiples: &[f64] = match decades {
        d if d > 2.5 => &[1.0],
        d if d > 1.2 => &[1.0, 3.0],
        _ => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
    };
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last)
        .flat_map(|power| multiples.iter().map(move |m| m * 10f64.powi(power)))
        .filter(|tick| (low..=high).contains(tick))
        .collect()
}

/// `value` with as many decimals as a step of `step` needs; large ones in thousands or millions.
fn number(value: f64, step: f64) -> String {
    let (value, step, unit) = match value.abs().max(step.abs()) {
        most if most >= 999_999.5 => (value / 1e6, step / 1e6, "M"),
        most if most >= 9_999.5 => (value / 1e3, step / 1e3, "k"),
        _ => (value, step, ""),
    };
    if value == 0.0 {
        return "0".to_string();
    }
    let decimals = (0..9).find(|&decimals| {
        let scaled = step * 10f64.powi(decimals);
        (scaled - scaled.round()).abs() < 1e-6 * scaled.abs().max(1e-3)
    });
    format!("{value:.*}{unit}", decimals.unwrap_or(3) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_within_the_axis() {
        let axis = Axis::over([0.1234, 0.1878].into_iter(), Scale::Linear, None);
        let labels: Vec<String> = axis.ticks.iter().map(|&tick| axis.label(tick)).collect();
        assert_eq!(
            labels,
            ["0.13", "0.14", "0.15", "0.16", "0.17", "0.18", "0.19"].map(String::from).to_vec()
        );
        let axis = Axis::over([1.0, 2000.0].into_iter(), Scale::Log, None);
        let labels: Vec<String> = axis.ticks.iter().map(|&tick| axis.label(tick)).collect();
        assert_eq!(labels, ["1", "10", "100", "1000"].map(String::from).to_vec());
        let axis = Axis::over([0.003, 0.2].into_iter(), Scale::Log, None);
        let labels: Vec<String> = axis.ticks.iter().map(|&tick| axis.label(tick)).collect();
        assert_eq!(labels, ["0.003", "0.01", "0.03", "0.1"].map(String::from).to_vec());
    }

    #[test]
    fn large_numbers_are_short() {
        let axis = Axis::over([50e3, 1.5e6].into_iter(), Scale::Log, Some(&[50e3, 200e3, 1.5e6]));
        assert_eq!(axis.label(50e3), "50k");
        assert_eq!(axis.label(1.5e6), "1.5M");
    }

    #[test]
    fn every_value_has_a_place_within() {
        for scale in [Scale::Linear, Scale::Log] {
            let values = [0.5, 3.0, 80.0];
            let axis = Axis::over(values.into_iter(), scale, None);
            let places: Vec<f64> = values.iter().map(|&value| axis.place(value).unwrap()).collect();
            assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(places.iter().all(|place| (0.0..=1.0).contains(place)));
        }
        assert_eq!(Axis::over([1.0].into_iter(), Scale::Log, None).place(0.0), None);
        // One value, or none, still makes an axis.
        assert!(Axis::over([7.0].into_iter(), Scale::Linear, None).place(7.0).is_some());
        assert!(!Axis::over(std::iter::empty(), Scale::Linear, None).ticks.is_empty());
    }
}
