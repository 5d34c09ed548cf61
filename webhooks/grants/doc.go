// Package grants has what an administrator grants to policies: which kinds they may patch and read, and the commands that grant
// more.
package grants
