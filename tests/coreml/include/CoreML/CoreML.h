/* Core ML's interface as far as src/coreml/coreml.m uses it, in our own words from the documentation: names, types and since
 * when each part is there. Used for the stand-in's build (with GNUstep's Foundation) and for the syntax check with Apple's
 * target (with apple/Foundation). Instance variables are those of the stand-in. */
#ifndef MILKIT_TESTS_COREML_H
#define MILKIT_TESTS_COREML_H

#import <Foundation/Foundation.h>

#define SINCE_MACOS(version) __attribute__((availability(macos, introduced = version)))

typedef NS_ENUM(NSInteger, MLMultiArrayDataType) {
    MLMultiArrayDataTypeFloat16 = 0x10010,
    MLMultiArrayDataTypeFloat32 = 0x10020,
    MLMultiArrayDataTypeDouble = 0x10040,
    MLMultiArrayDataTypeInt32 = 0x20020
};
typedef NS_ENUM(NSInteger, MLComputeUnits) {
    MLComputeUnitsCPUOnly = 0,
    MLComputeUnitsCPUAndGPU = 1,
    MLComputeUnitsAll = 2,
    MLComputeUnitsCPUAndNeuralEngine SINCE_MACOS(13.0) = 3
};

/* Counts those that live. */
@interface StandinObject : NSObject
@end

@interface MLMultiArray : StandinObject {
    void *data;
    NSInteger bytes;
    NSArray<NSNumber *> *shape, *strides;
    MLMultiArrayDataType dataType;
    void (^deallocator)(void *);
}
@property(readonly, nonatomic) NSArray<NSNumber *> *shape;
@property(readonly, nonatomic) NSArray<NSNumber *> *strides;
@property(readonly, nonatomic) MLMultiArrayDataType dataType;
@property(readonly, nonatomic) NSInteger count;
- (instancetype)initWithDataPointer:(void *)pointer
                              shape:(NSArray<NSNumber *> *)shape
                           dataType:(MLMultiArrayDataType)dataType
                            strides:(NSArray<NSNumber *> *)strides
                        deallocator:(void (^)(void *))deallocator
                              error:(NSError **)error;
- (void)getBytesWithHandler:(void (^)(const void *bytes, NSInteger size))handler SINCE_MACOS(12.3);
- (void)getMutableBytesWithHandler:(void (^)(void *bytes, NSInteger size,
                                             NSArray<NSNumber *> *strides))handler SINCE_MACOS(12.3);
@end

@interface MLMultiArrayConstraint : StandinObject {
    NSArray<NSNumber *> *shape;
    MLMultiArrayDataType dataType;
}
@property(readonly, nonatomic) NSArray<NSNumber *> *shape;
@property(readonly, nonatomic) MLMultiArrayDataType dataType;
@end

@interface MLFeatureDescription : StandinObject {
    NSString *name;
    MLMultiArrayConstraint *multiArrayConstraint;
}
@property(readonly, nonatomic) NSString *name;
@property(readonly, nonatomic) MLMultiArrayConstraint *multiArrayConstraint;
@end

@interface MLModelDescription : StandinObject {
    NSDictionary<NSString *, MLFeatureDescription *> *inputs, *outputs, *states;
}
@property(readonly, nonatomic) NSDictionary<NSString *, MLFeatureDescription *> *inputDescriptionsByName;
@property(readonly, nonatomic) NSDictionary<NSString *, MLFeatureDescription *> *outputDescriptionsByName;
@property(readonly, nonatomic)
    NSDictionary<NSString *, MLFeatureDescription *> *stateDescriptionsByName SINCE_MACOS(15.0);
@end

@interface MLFeatureValue : StandinObject {
    MLMultiArray *multiArrayValue;
}
@property(readonly, nonatomic) MLMultiArray *multiArrayValue;
+ (instancetype)featureValueWithMultiArray:(MLMultiArray *)value;
@end

@protocol MLFeatureProvider
@property(readonly, nonatomic) NSSet<NSString *> *featureNames;
- (MLFeatureValue *)featureValueForName:(NSString *)featureName;
@end

@interface MLModelConfiguration : StandinObject {
    MLComputeUnits computeUnits;
    NSString *functionName;
}
@property(nonatomic) MLComputeUnits computeUnits;
@property(nonatomic, copy) NSString *functionName SINCE_MACOS(15.0);
@end

@interface MLPredictionOptions : StandinObject {
    NSDictionary *outputBackings;
}
@property(nonatomic, copy) NSDictionary *outputBackings;
@end

SINCE_MACOS(15.0)
@interface MLState : StandinObject {
    void *states;
}
- (void)getMultiArrayForStateNamed:(NSString *)stateName handler:(void (^)(MLMultiArray *buffer))handler;
@end

@interface MLModel : StandinObject {
    void *served;
}
@property(readonly, nonatomic) MLModelDescription *modelDescription;
+ (NSURL *)compileModelAtURL:(NSURL *)modelURL error:(NSError **)error;
+ (MLModel *)modelWithContentsOfURL:(NSURL *)url
                      configuration:(MLModelConfiguration *)configuration
                              error:(NSError **)error;
- (id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                        options:(MLPredictionOptions *)options
                                          error:(NSError **)error;
- (MLState *)newState SINCE_MACOS(15.0);
- (id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                     usingState:(MLState *)state
                                        options:(MLPredictionOptions *)options
                                          error:(NSError **)error SINCE_MACOS(15.0);
@end

/* ---- plans ---- */

SINCE_MACOS(14.0)
@interface MLCPUComputeDevice : StandinObject
@end
SINCE_MACOS(14.0)
@interface MLGPUComputeDevice : StandinObject
@end
SINCE_MACOS(14.0)
@interface MLNeuralEngineComputeDevice : StandinObject
@end

SINCE_MACOS(14.4)
@interface MLModelStructureProgramNamedValueType : StandinObject {
    NSString *name;
}
@property(readonly, nonatomic) NSString *name;
@end

@class MLModelStructureProgramOperation;
SINCE_MACOS(14.4)
@interface MLModelStructureProgramBlock : StandinObject {
    NSArray<MLModelStructureProgramOperation *> *operations;
}
@property(readonly, nonatomic) NSArray<MLModelStructureProgramOperation *> *operations;
@end

SINCE_MACOS(14.4)
@interface MLModelStructureProgramOperation : StandinObject {
    NSString *operatorName;
    NSArray<MLModelStructureProgramNamedValueType *> *outputs;
    NSArray<MLModelStructureProgramBlock *> *blocks;
    BOOL onEngine;
    double cost;
}
@property(readonly, nonatomic) NSString *operatorName;
@property(readonly, nonatomic) NSArray<MLModelStructureProgramNamedValueType *> *outputs;
@property(readonly, nonatomic) NSArray<MLModelStructureProgramBlock *> *blocks;
@end

SINCE_MACOS(14.4)
@interface MLModelStructureProgramFunction : StandinObject {
    MLModelStructureProgramBlock *block;
}
@property(readonly, nonatomic) MLModelStructureProgramBlock *block;
@end

SINCE_MACOS(14.4)
@interface MLModelStructureProgram : StandinObject {
    NSDictionary<NSString *, MLModelStructureProgramFunction *> *functions;
}
@property(readonly, nonatomic) NSDictionary<NSString *, MLModelStructureProgramFunction *> *functions;
@end

SINCE_MACOS(14.4)
@interface MLModelStructure : StandinObject {
    MLModelStructureProgram *program;
}
@property(readonly, nonatomic) MLModelStructureProgram *program;
@end

SINCE_MACOS(14.4)
@interface MLComputePlanDeviceUsage : StandinObject {
    NSArray *supportedComputeDevices;
    id preferredComputeDevice;
}
@property(readonly, nonatomic) NSArray *supportedComputeDevices;
@property(readonly, nonatomic) id preferredComputeDevice;
@end

SINCE_MACOS(14.4)
@interface MLComputePlanCost : StandinObject {
    double weight;
}
@property(readonly, nonatomic) double weight;
@end

SINCE_MACOS(14.4)
@interface MLComputePlan : StandinObject {
    MLModelStructure *modelStructure;
}
@property(readonly, nonatomic) MLModelStructure *modelStructure;
+ (void)loadContentsOfURL:(NSURL *)url
            configuration:(MLModelConfiguration *)configuration
        completionHandler:(void (^)(MLComputePlan *plan, NSError *error))handler;
- (MLComputePlanDeviceUsage *)computeDeviceUsageForMLProgramOperation:(MLModelStructureProgramOperation *)op;
- (MLComputePlanCost *)estimatedCostOfMLProgramOperation:(MLModelStructureProgramOperation *)op;
@end

#endif
