//! Locks several resources in one step: all or none, in any order, without a deadlock.
//!
//! ```text
//! cargo run --example several_resources
//! ```

use redlock_client::{Error, LockManager};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::{JoinSet, yield_now};

/// Two accounts. A transfer reads and writes them in separate steps, so only the lock isolates the transfers.
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
    // Some of these tasks name account 0 first, others account 1. With one lock after the other, two tasks
    // could deadlock: each would wait for the lock of the other. Here every node decides about both keys in
    // one step.
    let guard = locks.acquire_many(&resources, Duration::from_secs(5)).await?;

    let (source, target) = (bank.balance(from), bank.balance(to));
    yield_now().await;
    bank.set_balance(from, source - 1);
    yield_now().await;
    bank.set_balance(to, target + 1);

    // A guard has one fence for all its resources. It is larger than every earlier fence of each resource.
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
    assert_eq!((bank.balance(0), bank.balance(1)), (100, 100), "no transfer lost money");

    // If another guard holds one of the resources, the request for both is refused.
    let one = locks.acquire("account:1", Duration::from_secs(5)).await?;
    if let Err(refused) = locks.try_acquire_many(["account:0", "account:1"], Duration::from_secs(5)).await {
        println!("refused: {refused}");
    }
    // The refused request has not locked the other resource.
    let other = locks.try_acquire("account:0", Duration::from_secs(5)).await?;
    println!("account:0 is free, fence {}", other.fence());

    other.release().await;
    one.release().await;
    Ok(())
}
