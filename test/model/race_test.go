//go:build race

package model

// The race detector makes a run some ten times slower.
const slow = 10

// A test at every call looks at some of them only: those of each kind of disturbance at others.
const stride = 5
