//! `fastvae doctor`: what the machine offers, and why a GPU is not used.

use anyhow::Result;
use clap::Args;
use fastvae::internals::backend;
use fastvae::internals::math::simd;
use fastvae::internals::resources;
use serde_json::json;

use crate::display::{bytes, plain, text};
use crate::output::{print, print_json};

/// Say what this machine offers for training, and why a GPU is not used
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae doctor
  fastvae doctor --json

`fastvae train --device auto` takes the first GPU that is usable, --device cpu none.")]
pub struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Looks and prints.
    pub fn run(self) -> Result<()> {
        let threads = resources::available_threads();
        let memory = resources::available_memory();
        let gpus = backend::gpus();
        if self.json {
            let devices = gpus.devices.iter().enumerate().map(|(number, gpu)| {
                json!({
                    "device": format!("cuda:{number}"),
                    "name": gpu.name,
                    "memory_bytes": gpu.memory.1,
                    "free_bytes": gpu.memory.0,
                    "compute_capability": format!("{}.{}", gpu.capability.0, gpu.capability.1),
                    "multiprocessors": gpu.multiprocessors,
                })
            });
            return print_json(&json!({
                "version": env!("CARGO_PKG_VERSION"),
                "threads": threads,
                "instructions": simd::level_name(),
                "available_memory_bytes": memory,
                "cuda_driver": gpus.driver,
                "gpus": devices.collect::<Vec<_>>(),
                "obstacle": gpus.obstacle,
            }));
        }
        let mut table = plain();
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_string(), value]);
        };
        row("fastvae", env!("CARGO_PKG_VERSION").into());
        row("cores", format!("{threads}, vector instructions {}", simd::level_name()));
        row("memory", memory.map_or("unknown".into(), |n| format!("{} available", bytes(n))));
        row("CUDA driver", gpus.driver.map_or("none".into(), |version| format!("for CUDA {version}")));
        for (number, gpu) in gpus.devices.iter().enumerate() {
            let (free, total) = gpu.memory;
            let value = format!(
                "{}, {} of {} free, compute capability {}.{}",
                gpu.name,
                bytes(free as u64),
                bytes(total as u64),
                gpu.capability.0,
                gpu.capability.1
            );
            row(&format!("cuda:{number}"), value);
        }
        row(
            "trains on",
            match &gpus.obstacle {
                Some(obstacle) => format!("the cores: {obstacle}"),
                None => "cuda:0, unless --device says otherwise".into(),
            },
        );
        print(&format!("{}\n", text(table, [])))
    }
}
