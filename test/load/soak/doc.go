// Package soak holds no code but a test: two replicas answer the API server while somebody in a pod sends them all that is large, slow
// and broken.
package soak
