// Package grants is what an administrator grants to policies beyond judging: which kinds they may patch and read, and the command that
// grants more.
package grants
