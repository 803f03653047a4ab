// Package ledger keeps accounts and the amounts that move between them.
package ledger

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"
)

var ErrUnknownAccount = errors.New("unknown account")

// An Entry moves an amount from one account to another.
type Entry struct {
	From   string
	To     string
	Amount int64
	At     time.Time
}

type Ledger struct {
	mu       sync.RWMutex
	balances map[string]int64
	entries  []Entry
	now      func() time.Time
}

func New(now func() time.Time) *Ledger {
	return &Ledger{balances: make(map[string]int64), now: now}
}

// Open adds an account with a balance of zero.
func (l *Ledger) Open(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, exists := l.balances[name]; exists {
		return fmt.Errorf("account %q exists already", name)
	}
	l.balances[name] = 0
	return nil
}

func (l *Ledger) Transfer(from, to string, amount int64) error {
	if amount <= 0 {
		return fmt.Errorf("amount must be positive, not %d", amount)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range []string{from, to} {
		if _, exists := l.balances[name]; !exists {
			return fmt.Errorf("%w: %s", ErrUnknownAccount, name)
		}
	}
	l.balances[from] -= amount
	l.balances[to] += amount
	l.entries = append(l.entries, Entry{From: from, To: to, Amount: amount, At: l.now()})
	return nil
}

func (l *Ledger) Balance(name string) (int64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	balance, exists := l.balances[name]
	if !exists {
		return 0, fmt.Errorf("%w: %s", ErrUnknownAccount, name)
	}
	return balance, nil
}

// Since returns the entries that were made at a time or later, oldest first.
func (l *Ledger) Since(start time.Time) []Entry {
	l.mu.RLock()
	defer l.mu.RUnlock()
	first := sort.Search(len(l.entries), func(i int) bool {
		return !l.entries[i].At.Before(start)
	})
	found := make([]Entry, len(l.entries)-first)
	copy(found, l.entries[first:])
	return found
}

// Largest returns the names of the accounts with the largest balances.
func (l *Ledger) Largest(count int) []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	names := make([]string, 0, len(l.balances))
	for name := range l.balances {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		if l.balances[names[i]] != l.balances[names[j]] {
			return l.balances[names[i]] > l.balances[names[j]]
		}
		return names[i] < names[j]
	})
	if count < len(names) {
		names = names[:count]
	}
	return names
}
