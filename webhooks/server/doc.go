// Package server serves the admission webhooks over HTTP.
package server
