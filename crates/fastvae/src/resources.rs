//! What the process has used, and what the machine has.

/// Threads that run at the same time: cores, or what the system grants of them.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processor seconds of this process over all its threads, user and system; 0 where the system does not say.
pub fn cpu_seconds() -> f64 {
    usage().map_or(0.0, |usage| {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    })
}

/// The most memory that this process has held at once, in bytes; None where the system does not say.
pub fn peak_memory() -> Option<u64> {
    // macOS counts in bytes, the others in kilobytes.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    usage().map(|usage| usage.ru_maxrss as u64 * unit)
}

/// Memory that this process holds now, pages of mapped files included, in bytes; None where the system does not
/// say.
pub fn current_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Memory that can be taken without swapping, in bytes; None where the system does not say.
pub fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(unix)]
fn usage() -> Option<libc::rusage> {
    // SAFETY: rusage is a plain C struct for which all zeros is a value, and getrusage only writes to it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_SELF, &mut usage) == 0).then_some(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time_and_memory() {
        let before = cpu_seconds();
        let mut values = vec![1.0f64; 4_000_000];
        for _ in 0..20 {
            values.iter_mut().for_each(|v| *v = (*v + 1.0).sqrt());
        }
        assert!(cpu_seconds() > before, "{}", values[17]);
        assert!(peak_memory().unwrap() > 32_000_000);
    }
}
