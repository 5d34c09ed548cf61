// Package events writes Kubernetes events about denied and overridden requests.
package events
