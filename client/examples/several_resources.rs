//! Several resources in one step: all of them or none, in any order, without a deadlock.
//!
//! ```text
//! cargo run --example several_resources
//! ```

use redlock_client::{Error, LockManager};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::{JoinSet, yield_now};

/// Two accounts, read and written in separate steps: only the lock keeps transfers apart.
struct Bank {
    accounts: Mutex<[i64; 2]>,
}

impl Bank {
    fn balance(&self, account: usize) -> i64 {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)[account]
    }

    fn set_balance(&self, account: usize, balance: i64) {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)[account] = balance;
    }
}

async fn transfer(locks: LockManager, bank: Arc<Bank>, from: usize, to: usize) -> Result<u64, Error> {
    let resources = [format!("account:{from}"), format!("account:{to}")];
    // Some of these tasks name account 0 first and others account 1. Taking two locks one after the other
    // would let each of two tasks wait for what the other one has. Here every node decides about both in one
    // step.
    let guard = locks.acquire_many(&resources, Duration::from_secs(5)).await?;

    let (source, target) = (bank.balance(from), bank.balance(to));
    yield_now().await;
    bank.set_balance(from, source - 1);
    yield_now().await;
    bank.set_balance(to, target + 1);

    // There is one fence for all resources of a guard, and it is larger than every one before on each of
    // them.
    let fence = guard.fence();
    guard.release().await;
    Ok(fence)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = LockManager::in_memory(5);
    let bank = Arc::new(Bank { accounts: Mutex::new([100, 100]) });

    let mut transfers = JoinSet::new();
    for number in 0..20 {
        let (from, to) = if number % 2 == 0 { (0, 1) } else { (1, 0) };
        transfers.spawn(transfer(locks.clone(), Arc::clone(&bank), from, to));
    }
    let mut fences = Vec::new();
    for outcome in transfers.join_all().await {
        fences.push(outcome?);
    }

    fences.sort_unstable();
    println!("{} transfers, fences {fences:?}", fences.len());
    assert_eq!((bank.balance(0), bank.balance(1)), (100, 100), "nothing is lost on the way");

    // A single lock on one of the resources is in the way of all.
    let one = locks.acquire("account:1", Duration::from_secs(5)).await?;
    if let Err(refused) = locks.try_acquire_many(["account:0", "account:1"], Duration::from_secs(5)).await {
        println!("refused: {refused}");
    }
    // And nothing is left of the refused request on the other one.
    let other = locks.try_acquire("account:0", Duration::from_secs(5)).await?;
    println!("account:0 is free, fence {}", other.fence());

    other.release().await;
    one.release().await;
    Ok(())
}
