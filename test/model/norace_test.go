//go:build !race

package model

const slow = 1

const stride = 1
