// Package certmanager has cert-manager's own controllers and its cainjector issue and announce the certificate of an installed Sallyport,
// while requests are made: make test-cert-manager.
package certmanager
