// Package review holds what `sallyport review` says against what a real API server answers, whose webhooks are served by the
// same gate as a manager's: request by request, each against the objects that were there just before it.
package review
