// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	alphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The descriptors that `make proto` compiles from protos/.
//
//go:embed services.binpb
var serviceDescriptors []byte

// addReflection adds server reflection. The descriptors are used for nothing else; messages are not decoded.
func addReflection(server *grpc.Server) error {
	files, err := descriptors()
	if err != nil {
		return fmt.Errorf("reflection: %w", err)
	}
	how := reflection.ServerOptions{Services: server, DescriptorResolver: files, ExtensionResolver: &protoregistry.Types{}}
	alpha, current := reflection.NewServer(how), reflection.NewServerV1(how)
	alphapb.RegisterServerReflectionServer(server, alpha)
	reflectionpb.RegisterServerReflectionServer(server, current)
	return nil
}

func descriptors() (*protoregistry.Files, error) {
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(serviceDescriptors, set); err != nil {
		return nil, err
	}
	for _, file := range []protoreflect.FileDescriptor{
		healthpb.File_grpc_health_v1_health_proto,
		reflectionpb.File_grpc_reflection_v1_reflection_proto,
		alphapb.File_grpc_reflection_v1alpha_reflection_proto,
	} {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	return protodesc.NewFiles(set)
}
