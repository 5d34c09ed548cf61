// Command s3 is a server of S3, and a client of one: s3 serve, s3 put URL, s3 get URL. A URL is http://HOST/BUCKET/KEY; the client connects to
// the address in S3_ADDRESS, whatever the host is. The account is in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	id, key := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	if len(args) == 1 && args[0] == "serve" {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println(listener.Addr())
		server := gofakes3.New(s3mem.New(), gofakes3.WithV4Auth(map[string]string{id: key}), gofakes3.WithAutoBucket(true))
		return http.Serve(listener, server.Server())
	}
	if len(args) != 2 {
		return errors.New("usage: s3 serve | s3 put URL | s3 get URL")
	}
	u, err := url.Parse(args[1])
	if err != nil {
		return err
	}
	bucket, object, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	dialer := &net.Dialer{}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, os.Getenv("S3_ADDRESS"))
	}}
	client := awss3.New(awss3.Options{
		BaseEndpoint: aws.String(u.Scheme + "://" + u.Host), UsePathStyle: true, Region: "us-east-1", Retryer: aws.NopRetryer{},
		HTTPClient: &http.Client{Transport: transport}, RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: id, SecretAccessKey: key}, nil
		}),
	})
	if id == "" {
		client = awss3.New(client.Options(), func(o *awss3.Options) { o.Credentials = aws.AnonymousCredentials{} })
	}
	if args[0] == "put" {
		body, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		_, err = client.PutObject(ctx, &awss3.PutObjectInput{Bucket: &bucket, Key: &object, Body: bytes.NewReader(body)})
		return err
	}
	got, err := client.GetObject(ctx, &awss3.GetObjectInput{Bucket: &bucket, Key: &object})
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, got.Body)
	return err
}
